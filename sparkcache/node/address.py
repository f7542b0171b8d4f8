"""Where a node is reached: a socket in the executor's own directory.

    <executor's local directory>/sparkcache/   mode 0700
        socket      the node listens here
        lock        held by the process that starts a node
        log         output of the node and its loaders
        log.1       earlier output, once there is much of it

The path of a socket may have at most 107 bytes; a longer one is reached through a
descriptor of its directory.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcache.errors import CacheUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREDENTIALS = struct.Struct("3i")
_RETRY_S = 0.02


class Address:
    """A node's directory and the files in it."""

    def __init__(self, executor_dir: Path) -> None:
        self.executor_dir = executor_dir
        self.directory = executor_dir / "sparkcache"
        self.lock = self.directory / "lock"
        self.log = self.directory / "log"
        self._socket = "socket"
        self._own: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"Address({self.directory})"

    @classmethod
    def of_this_executor(cls) -> Address:
        """Return the address that all tasks of this executor share."""
        directories = os.environ.get("SPARK_LOCAL_DIRS", "")
        if not directories:
            raise CacheUnavailable(
                "SPARK_LOCAL_DIRS is not set: this is not a Spark worker"
            )
        return cls(Path(directories.split(",")[0]))

    def prepare(self) -> None:
        """Create the directory, accessible to this user only."""
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            status = self.directory.stat()
        except OSError as error:
            raise CacheUnavailable(
                f"could not create the directory of the node: {error}"
            ) from error
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise CacheUnavailable(f"{self.directory} is open to other users")

    def connect(self, timeout_s: float) -> socket.socket:
        """Return a connection; raises OSError if no node listens.

        Raises TimeoutError if one does, and accepts no connection for so long.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        end_s = time.monotonic() + timeout_s
        try:
            with self._short_path() as path:
                while True:
                    try:
                        sock.connect(path)
                        break
                    except BlockingIOError:  # too many connections are not accepted yet
                        if time.monotonic() > end_s:
                            raise TimeoutError(
                                f"no connection was accepted for {timeout_s:g} s"
                            ) from None
                        time.sleep(_RETRY_S)
            require_same_user(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def listen(self) -> socket.socket:
        """Return a listening socket, which replaces the file of an earlier one."""
        (self.directory / self._socket).unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._short_path() as path:
                sock.bind(path)
            sock.listen(socket.SOMAXCONN)
            self._own = self._identity()
        except BaseException:
            sock.close()
            raise
        return sock

    def owns_socket(self) -> bool:
        """Return whether the socket file is still that of this node's `listen`."""
        return self._identity() == self._own is not None

    def remove_socket(self) -> None:
        """Remove the socket file, if it is this node's own.

        To be called before the socket is closed. While the lock is held, another node
        may be replacing the file: then it stays.
        """
        with suppress(OSError), self.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.owns_socket():
                (self.directory / self._socket).unlink()

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = (self.directory / self._socket).stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    @contextmanager
    def _short_path(self) -> Iterator[str]:
        fd = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{fd}/{self._socket}"
        finally:
            os.close(fd)


def require_same_user(sock: socket.socket) -> None:
    """Raise PermissionError unless the peer is a process of this user."""
    _, uid = _credentials(sock)
    if uid != os.getuid():
        raise PermissionError(
            f"the peer is a process of user {uid}, expected user {os.getuid()}"
        )


def peer_pid(sock: socket.socket) -> int:
    """Return the process that listens at the other end; 0 if it cannot be seen."""
    return _credentials(sock)[0]


def _credentials(sock: socket.socket) -> tuple[int, int]:
    """Return the pid and user of the peer, as they were when it began to listen."""
    credentials = sock.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid, uid
