"""How long a node lives: as long as its executor.

An executor ends when its JVM does, which a pidfd reports at once, however the JVM dies.
In local mode it also ends when Spark removes the executor's directory while the JVM
goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

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
    pid = os.getppid()
    while pid > 1:
        name, parent = _name_and_parent(pid)
        if name == "java":
            return pid
        pid = parent
    return os.getppid()


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _name_and_parent(pid: int) -> tuple[str, int]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", 0
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])
