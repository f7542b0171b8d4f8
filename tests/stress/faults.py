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
from typing import TYPE_CHECKING

import psutil

from tests.stress.cluster_processes import ClusterProcesses

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = {  # with their weights
    "kill node": 5,
    "kill loader": 5,
    "kill worker": 4,
    "kill executor": 2,
    "stop node": 4,
    "stop loader": 4,
    "stop worker": 3,
    "few descriptors": 3,
    "cancel jobs": 1,
}
_PAUSE_S = (0.3, 3.0)
_LASTS_S = (0.2, 5.0)
_SAMPLE_S = 0.1
_BETWEEN_EXECUTORS = 8
"""Faults after which another executor may be killed: it takes seconds to start one."""


def log(text: str) -> None:
    """Write a line with the time to standard error."""
    print(f"{time.monotonic():.2f} {text}", file=sys.stderr, flush=True)


class Faults:
    """Causes faults from `start` to `end`.

    Attributes:
        kinds: How many faults there were of each kind.
        samples: How often the memory of a node was looked at.
        exceeded: How often it was above the limit.
        largest_bytes: The most that was found.

    Args:
        seed: Decides the kinds, the times, and which process of its kind is hit.
        max_bytes: The limit of a node.
        cancel: Cancels the jobs that run; returns whether there were any.

    """

    def __init__(self, seed: int, max_bytes: int, cancel: Callable[[], bool]) -> None:
        self.kinds: Counter[str] = Counter()
        self.samples = self.exceeded = self.largest_bytes = 0
        self._random = random.Random(seed)
        self._max_bytes = max_bytes
        self._cancel = cancel
        self._since_executor = _BETWEEN_EXECUTORS
        self._stopped: set[int] = set()
        self._limits: dict[int, tuple[int, int]] = {}  # as they were
        self._to_end: list[tuple[float, Callable[[], None]]] = []
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults")

    def start(self) -> None:
        """Begin."""
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
            while not self._is_over.wait(_SAMPLE_S):
                self._end_those_before(time.monotonic())
                self.sample()
                if time.monotonic() >= at_s:
                    self._cause()
                    at_s = time.monotonic() + self._random.uniform(*_PAUSE_S)
        except BaseException as error:
            self._error = error
        finally:
            self._end_those_before(float("inf"))

    def _cause(self) -> None:
        """Cause one fault, if there is a process for it. Draws the same each time."""
        kind = self._next_kind()
        share, lasts_s = self._random.random(), self._random.uniform(*_LASTS_S)
        if kind == "cancel jobs":
            if self._cancel():
                log(kind)
                self.kinds[kind] += 1
            return
        found = ClusterProcesses.now()
        whose = "node" if kind == "few descriptors" else kind.split()[1]
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
            log(f"{kind} {pid} ({lasts_s:.1f} s)")
            self._hit(kind, pid, time.monotonic() + lasts_s)
            self.kinds[kind] += 1

    def _next_kind(self) -> str:
        (kind,) = self._random.choices([*KINDS], [*KINDS.values()])
        self._since_executor += 1
        if kind == "kill executor":
            if self._since_executor <= _BETWEEN_EXECUTORS:
                return "kill worker"
            self._since_executor = 0
        return kind

    def _hit(self, kind: str, pid: int, until_s: float) -> None:
        if kind.startswith("kill"):
            os.kill(pid, signal.SIGKILL)
        elif kind.startswith("stop"):
            os.kill(pid, signal.SIGSTOP)
            self._stopped.add(pid)
            self._to_end.append((until_s, lambda: self._resume(pid)))
        else:
            process = psutil.Process(pid)
            _, most = limits = process.rlimit(resource.RLIMIT_NOFILE)
            before = self._limits.setdefault(pid, limits)
            process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + 1, most))
            self._to_end.append((until_s, lambda: _set_limit(process, before)))

    def _resume(self, pid: int) -> None:
        self._stopped.discard(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _end_those_before(self, now_s: float) -> None:
        due = [end for at_s, end in self._to_end if at_s <= now_s]
        self._to_end = [one for one in self._to_end if one[0] > now_s]
        for end in due:
            end()


def _set_limit(process: psutil.Process, limits: tuple[int, int]) -> None:
    with suppress(psutil.Error):
        process.rlimit(resource.RLIMIT_NOFILE, limits)
