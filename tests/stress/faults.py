"""Faults that befall the processes of a cluster, in an order that follows from a seed.

One thread does all of it, one thing after another: it causes faults, ends those that
last, and compares the memory of nodes with their limit in between.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import psutil

from tests.stress.cluster_processes import ClusterProcesses
from tests.stress.steps import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.stress.clusters import Cluster
    from tests.stress.steps import Steps

KINDS = {  # with their weights
    "kill node": 4,
    "kill loader": 4,
    "kill worker": 3,
    "kill executor": 2,
    "kill machine": 1,
    "stop node": 3,
    "stop loader": 3,
    "stop worker": 2,
    "kill at step": 9,
    "stop at step": 4,
    "few descriptors node": 2,
    "few descriptors loader": 1,
    "little memory node": 2,
    "little memory loader": 2,
    "no files node": 1,
    "no files loader": 1,
    "full disk": 1,
    "cancel jobs": 2,
    "decommission executor": 1,
}
_COST_AN_EXECUTOR = {"kill executor", "kill machine", "decommission executor"}
_LIMITS = {
    "few descriptors": resource.RLIMIT_NOFILE,
    "little memory": resource.RLIMIT_AS,
    "no files": resource.RLIMIT_FSIZE,
}
_PAUSE_S = (0.3, 3.0)
_LASTS_S = (0.2, 5.0)
_SAMPLE_S = 0.1
_AT_ONCE_S = 0.5
_LITTLE_BYTES = 1 << 20
_BETWEEN_EXECUTORS = 8
"""Faults after which another executor may be lost: it takes seconds to start one."""


def log(text: str) -> None:
    """Write a line with the time to standard error."""
    print(f"{time.monotonic():.2f} {text}", file=sys.stderr, flush=True)


class Surroundings(NamedTuple):
    """What faults are caused in.

    Attributes:
        cluster: The cluster, which may lose a machine.
        steps: The steps at which processes are hit.
        disk: A directory with little room that the executors write to, if there is one.
        cancel: Cancels the jobs that run; returns whether there were any.

    """

    cluster: Cluster
    steps: Steps
    disk: Path | None
    cancel: Callable[[], bool]


class Faults:
    """Causes faults for a while after `start`.

    Attributes:
        kinds: How many faults there were of each kind.
        steps: How many of them there were at each step.
        samples: How often the memory of a node was looked at.
        exceeded: How often it was above the limit.
        largest_bytes: The most that was found.

    Args:
        seed: Decides the kinds, the times, and which process of its kind is hit.
        max_bytes: The limit of a node.
        surroundings: What they are caused in.

    """

    def __init__(self, seed: int, max_bytes: int, surroundings: Surroundings) -> None:
        self.kinds: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.samples = self.exceeded = self.largest_bytes = 0
        self._random = random.Random(seed)
        self._max_bytes = max_bytes
        self._surroundings = surroundings
        self._since_executor = _BETWEEN_EXECUTORS
        self._stopped: set[int] = set()
        self._limits: dict[tuple[int, int], tuple[int, int]] = {}  # as they were
        self._to_end: list[tuple[float, Callable[[], None]]] = []
        self._error: BaseException | None = None
        self._until_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults")

    def start(self, seconds: float) -> None:
        """Begin; cause no more faults after so many seconds."""
        self._until_s = time.monotonic() + seconds
        self._thread.start()

    def end(self) -> None:
        """Cause no more faults, end those that last; raise what went wrong here."""
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def sample(self) -> None:
        """Compare the memory of each node with the limit."""
        found = ClusterProcesses.now()
        for node in found.nodes:
            held_bytes = found.memory_bytes(node, self._stopped)
            self.samples += 1
            self.exceeded += held_bytes > self._max_bytes
            self.largest_bytes = max(self.largest_bytes, held_bytes)

    def _run(self) -> None:
        try:
            at_s = 0.0
            while time.monotonic() < self._until_s and not self._is_over.wait(
                _SAMPLE_S
            ):
                self._end_those_before(time.monotonic())
                self._count_steps()
                self.sample()
                if time.monotonic() >= at_s:
                    self._cause()
                    at_s = time.monotonic() + self._random.uniform(*_PAUSE_S)
        except BaseException as error:
            self._error = error
        finally:
            self._surroundings.steps.disarm()
            time.sleep(_AT_ONCE_S)  # for those that have just come to a step
            self._count_steps()
            self._end_those_before(float("inf"))

    def _cause(self) -> None:
        """Cause one fault, if there is a process for it. Draws the same each time."""
        kind = self._next_kind()
        share, lasts_s = self._random.random(), self._random.uniform(*_LASTS_S)
        step = self._random.choice([*STEPS])
        if kind.endswith("at step"):
            self._arm(kind, step)
            return
        whose = kind.split()[-1]
        pid = 0
        if whose in ("node", "loader", "worker", "executor"):
            found = ClusterProcesses.now()
            pids = {
                "node": [*found.nodes],
                "loader": found.loaders,
                "worker": found.workers,
                "executor": found.executors,
            }[whose]
            if not pids:
                return
            pid = pids[int(share * len(pids))]
        with suppress(ProcessLookupError, psutil.Error):
            if self._hit(kind, pid, share, time.monotonic() + lasts_s):
                log(f"{kind} {pid or ''} ({lasts_s:.1f} s)")
                self.kinds[kind] += 1

    def _next_kind(self) -> str:
        (kind,) = self._random.choices([*KINDS], [*KINDS.values()])
        if kind in _COST_AN_EXECUTOR and not self._may_cost_an_executor():
            kind = "kill worker"
        self._since_executor += 1
        return kind

    def _may_cost_an_executor(self) -> bool:
        if self._since_executor < _BETWEEN_EXECUTORS:
            return False
        self._since_executor = 0
        return True

    def _arm(self, kind: str, step: str) -> None:
        """Have a process hit at a step. Counted when it comes to it."""
        number = signal.SIGKILL if kind.startswith("kill") else signal.SIGSTOP
        if (
            step.startswith("executor")
            and number == signal.SIGKILL
            and not self._may_cost_an_executor()
        ):
            return
        self._surroundings.steps.arm(step, number)

    def _count_steps(self) -> None:
        """Count what was hit at a step, and see that what was stopped goes on."""
        for step, number, pid in self._surroundings.steps.take():
            kind = "kill at step" if number == signal.SIGKILL else "stop at step"
            log(f"{kind} {step} {pid}")
            self.kinds[kind] += 1
            self.steps[step] += 1
            if number == signal.SIGSTOP:
                self._resume_later(
                    pid, time.monotonic() + self._random.uniform(*_LASTS_S)
                )

    def _hit(self, kind: str, pid: int, share: float, until_s: float) -> bool:
        """Cause a fault; return whether that is possible here."""
        cluster, disk = self._surroundings.cluster, self._surroundings.disk
        if kind == "cancel jobs":
            return self._surroundings.cancel()
        if kind == "kill machine":
            if cluster.can_lose_machines:
                cluster.lose_machine(share)
            return cluster.can_lose_machines
        if kind == "full disk":
            if disk is not None:
                self._fill(disk / "filler", until_s)
            return disk is not None
        if kind == "decommission executor":
            os.kill(pid, signal.SIGPWR)
        elif kind.startswith("kill"):
            os.kill(pid, signal.SIGKILL)
        elif kind.startswith("stop"):
            os.kill(pid, signal.SIGSTOP)
            self._resume_later(pid, until_s)
        else:
            self._limit(kind.rpartition(" ")[0], psutil.Process(pid), until_s)
        return True

    def _limit(self, kind: str, process: psutil.Process, until_s: float) -> None:
        """Leave a process almost nothing of a resource."""
        which = _LIMITS[kind]
        _, most = limits = process.rlimit(which)
        before = self._limits.setdefault((process.pid, which), limits)
        limit = {
            "few descriptors": process.num_fds() + 1,
            "little memory": process.memory_info().vms + _LITTLE_BYTES,
            "no files": 0,
        }[kind]
        process.rlimit(which, (limit, most))
        self._to_end.append((until_s, lambda: _set_limit(process, which, before)))

    def _fill(self, file: Path, until_s: float) -> None:
        """Leave no room on a disk."""
        self._to_end.append((until_s, lambda: file.unlink(missing_ok=True)))
        with file.open("ab") as filler:
            status = os.statvfs(file)
            with suppress(OSError):  # others write as well
                size_bytes = status.f_bavail * status.f_frsize
                os.posix_fallocate(filler.fileno(), filler.tell(), size_bytes)

    def _resume_later(self, pid: int, at_s: float) -> None:
        self._stopped.add(pid)
        self._to_end.append((at_s, lambda: self._resume(pid)))

    def _resume(self, pid: int) -> None:
        self._stopped.discard(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _end_those_before(self, now_s: float) -> None:
        due = [end for at_s, end in self._to_end if at_s <= now_s]
        self._to_end = [one for one in self._to_end if one[0] > now_s]
        for end in due:
            end()


def _set_limit(process: psutil.Process, which: int, limits: tuple[int, int]) -> None:
    """Set a limit of a process, and of those that have inherited it."""
    with suppress(psutil.Error):
        processes = [process, *process.children(recursive=True)]
        for one in processes:
            with suppress(psutil.Error):
                one.rlimit(which, limits)
