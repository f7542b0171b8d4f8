"""What a test has left behind: descriptors, processes, shared memory.

The test process is the reaper of its orphans. So a node, which lives on as a daemon,
becomes its child, and one look at the children of this process sees every process that
a test started, without a walk through all of /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE_S = 5.0
_POLL_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36

# Opened once by a library, when it first needs them, and kept.
_KEPT_OPEN = ("/dev/null", "/dev/urandom", "/proc/", "/sys/")

spark_directory: Path | None = None
"""Where the session's Spark keeps its files; its node is not a test's leak."""


def become_reaper() -> None:
    """Have orphans of this process's descendants become its own children."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Belongings:
    """What this process has, each thing with a description of it."""

    descriptors: dict[int, str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    shared_files: frozenset[str] = frozenset()

    @classmethod
    def now(cls) -> Belongings:
        return cls(
            dict(_descriptors()),
            dict(_descendants(os.getpid())),
            frozenset(os.listdir("/dev/shm")),  # noqa: PTH208 - Path is slower
        )

    def since(self, before: Belongings) -> list[str]:
        """Describe what is here that was not here before."""
        return [
            *(
                f"descriptor {fd}: {target}"
                for fd, target in self.descriptors.items()
                if before.descriptors.get(fd) != target and not _leads_to_spark(fd)
            ),
            *(
                f"process {pid}: {command}"
                for pid, command in self.processes.items()
                if pid not in before.processes
            ),
            *(f"/dev/shm/{name}" for name in self.shared_files - before.shared_files),
        ]


def left_behind(before: Belongings) -> list[str]:
    """Describe what is still here after a time of grace that was not here before."""
    leaks = Belongings.now().since(before)
    if not leaks:
        return []
    gc.collect()
    deadline_s = time.monotonic() + GRACE_S
    while (leaks := Belongings.now().since(before)) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return leaks


def processes_with(marker: str) -> list[int]:
    """Return the processes below this one with that text in their command line.

    Parents come before their children; by number they would not, since numbers wrap.
    """
    return [pid for pid, command in _descendants(os.getpid()) if marker in command]


def gone(marker: str) -> bool:
    """Tell whether all processes with that text end within the time of grace."""
    deadline_s = time.monotonic() + GRACE_S
    while processes_with(marker) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return not processes_with(marker)


def _descriptors() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # that of the directory itself
        if not target.startswith(_KEPT_OPEN):
            yield int(name), target


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the processes below one; Spark's own are not looked at."""
    for child in _children(pid):
        try:
            data = Path(f"/proc/{child}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        command = data.replace(b"\0", b" ").decode(errors="replace")
        if not data:
            _reap(child, pid)
        elif not _is_of_spark(command):
            yield child, command
            yield from _descendants(child)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def _is_of_spark(command: str) -> bool:
    if spark_directory is None:
        return False
    return "org.apache.spark" in command or str(spark_directory) in command


def _leads_to_spark(fd: int) -> bool:
    """Tell whether it is a connection of py4j's, or for accumulators; they are kept."""
    if spark_directory is None:
        return False
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as sock:
            return sock.family != socket.AF_UNIX or (
                os.fsdecode(sock.getsockname()).endswith(".sock")
            )
    except OSError:
        return False


def _reap(child: int, parent: int) -> None:
    """Bury an orphan that has ended."""
    if parent == os.getpid():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
