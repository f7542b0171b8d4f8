"""How long a node lives: as long as its executor.

An executor ends when its JVM does, which a pidfd reports at once, however the JVM dies.
In local mode it also ends when Spark removes the executor's directory while the JVM
goes on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from pathlib import Path

_POLL_S = 0.5


def watch(
    loop: AbstractEventLoop, *, pid: int, directory: Path, on_end: Callable[[], None]
) -> None:
    """Call `on_end` once the process has ended or the directory was replaced."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        loop.call_soon(on_end)
        return
    identity = _identity(directory)
    has_ended = False

    def poll() -> None:
        if has_ended:
            return
        if _identity(directory) == identity is not None:
            loop.call_later(_POLL_S, poll)
        else:
            end()

    def end() -> None:
        nonlocal has_ended
        has_ended = True
        loop.remove_reader(pidfd)
        os.close(pidfd)
        on_end()

    loop.add_reader(pidfd, end)
    loop.call_soon(poll)


def executor_pid() -> int:
    """Return the pid of the JVM that this process works for, or else of its parent.

    A Python worker is started by the JVM, or forked by a daemon that the JVM started.
    """
    with suppress(psutil.Error):  # one of them has just ended
        for process in psutil.Process().parents():
            if process.name() == "java":
                return process.pid
    return os.getppid()


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
