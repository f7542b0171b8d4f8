"""How long a node lives: as long as its executor.

An executor ends when its JVM does, which a pidfd reports at once, however the JVM dies.
Where the kernel has no pidfd, or a sandbox denies it, the JVM is looked at twice per
second. In local mode an executor also ends when Spark removes its directory while the
JVM goes on.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from pathlib import Path

_POLL_S = 0.5

_log = logging.getLogger(__name__)


def watch(
    loop: AbstractEventLoop, *, pid: int, directory: Path, on_end: Callable[[], None]
) -> None:
    """Call `on_end` once the process has ended or the directory was replaced."""
    try:
        process = psutil.Process(pid)
        pidfd = _open_pidfd(pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        loop.call_soon(on_end)
        return
    identity = _identity(directory)
    has_ended = False

    def poll() -> None:
        if has_ended:
            return
        is_alive = pidfd is not None or _is_alive(process)
        if is_alive and _identity(directory) == identity is not None:
            loop.call_later(_POLL_S, poll)
        else:
            end()

    def end() -> None:
        nonlocal has_ended
        has_ended = True
        if pidfd is not None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        on_end()

    if pidfd is not None:
        loop.add_reader(pidfd, end)
    loop.call_soon(poll)


def executor_pid() -> int:
    """Return the pid of the JVM that this process works for, or else of its parent.

    A Python worker is started by the JVM, or forked by a daemon that the JVM started.
    In a container, a process may have no parent that it sees: then it is the process
    itself.
    """
    with suppress(psutil.Error):  # one of them has just ended
        for process in psutil.Process().parents():
            if process.name() == "java":
                return process.pid
    return os.getppid() or os.getpid()


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that reports the end of a process; None if that is denied.

    Raises ProcessLookupError.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError) as error:  # Python may be built without it, too
        _log.info("looking at process %d every %g s: %s", pid, _POLL_S, error)
        return None


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
