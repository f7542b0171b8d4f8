"""Detect leaks of a test: descriptors, processes, shared memory.

The test process is the reaper of its orphans. So a node, which runs on as a daemon,
becomes its child, and the children of this process include every process that a test
started, without a walk through all of /proc.
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

# Opened once by a library on first use, and kept open.
_KEPT_OPEN = ("/dev/null", "/dev/urandom", "/proc/", "/sys/")

spark_directory: Path | None = None
"""Directory of the shared Spark session, whose node is not a leak of a test."""


def become_reaper() -> None:
    """Let orphans of this process's descendants become its own children."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Belongings:
    """Resources that this process owns, each with a description."""

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
        """Describe the resources that are new since `before`."""
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


def leaked_since(before: Belongings) -> list[str]:
    """Describe the resources that are new since `before` after a grace period."""
    leaks = Belongings.now().since(before)
    if not leaks:
        return []
    gc.collect()
    deadline_s = time.monotonic() + GRACE_S
    while (leaks := Belongings.now().since(before)) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return leaks


def processes_with(marker: str) -> list[int]:
    """Return the descendants of this process with a text in their command line.

    Parents come before their children. Sorting by id would not ensure that: ids wrap.
    """
    return [pid for pid, command in _descendants(os.getpid()) if marker in command]


def gone(marker: str) -> bool:
    """Return whether all processes with this text end within the grace period."""
    deadline_s = time.monotonic() + GRACE_S
    while processes_with(marker) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return not processes_with(marker)


def _descriptors() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of the directory itself
        if not target.startswith(_KEPT_OPEN):
            yield int(name), target


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the descendants of a process, except Spark's own."""
    for child in _children(pid):
        try:
            data = Path(f"/proc/{child}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        command = data.replace(b"\0", b" ").decode(errors="replace")
        if not data:
            _reap(child, pid)
        elif not _is_spark(command):
            yield child, command
            yield from _descendants(child)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def _is_spark(command: str) -> bool:
    if spark_directory is None:
        return False
    return "org.apache.spark" in command or str(spark_directory) in command


def _leads_to_spark(fd: int) -> bool:
    """Return whether it is a connection of py4j or accumulators, which Spark keeps."""
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
    """Reap an orphan that has ended."""
    if parent == os.getpid():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
