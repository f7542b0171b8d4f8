"""What an application of the stress tests runs on: clusters, and a small disk."""

from __future__ import annotations

import ctypes
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CLONE_NEWNS = 0x00020000


class Cluster(Protocol):
    """A cluster that an application can run on.

    Attributes:
        url: The `master` of the application.
        can_lose_machines: Whether `lose_machine` works.

    """

    url: str
    can_lose_machines: bool

    def lose_machine(self, share: float) -> int:
        """Kill the process that stands for a machine, and start another.

        Returns its process id.

        Args:
            share: Which one, from 0 to 1.

        """


class LocalCluster:
    """The cluster in the driver's own process, with its executors."""

    can_lose_machines = False

    def __init__(self, machines: int) -> None:
        self.url = f"local-cluster[{machines},1,1024]"

    def lose_machine(self, share: float) -> int:
        raise NotImplementedError


@contextmanager
def small_disk(directory: Path, size_bytes: int) -> Iterator[bool]:
    """Make a directory a file system of this size; whether that is permitted.

    Only this process and its descendants see it, and it ends with them.
    """
    is_mounted = False
    with suppress(OSError, subprocess.CalledProcessError):
        _have_own_mounts()
        options = f"size={size_bytes}"
        _run("mount", "-t", "tmpfs", "-o", options, "sparkcache-chaos", str(directory))
        is_mounted = True
    try:
        yield is_mounted
    finally:
        if is_mounted:
            _run("umount", str(directory))


def _have_own_mounts() -> None:
    """Have this thread, and what it starts, see mounts that no other process sees.

    Among them is /dev/shm: what is left there is not that of others.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "sparkcache-chaos", "/dev/shm")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
