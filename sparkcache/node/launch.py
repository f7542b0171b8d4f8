"""Starting the node: by the first task that needs it, one at a time."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from sparkcache.errors import CacheUnavailable
from sparkcache.node.lifetime import executor_pid

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import IO

    from sparkcache.config import CacheConfig
    from sparkcache.node.address import Address

_POLL_S = 0.02

_log = logging.getLogger(__name__)


def connect(address: Address, config: CacheConfig) -> socket.socket:
    """Return a connection to the executor's node, which is started if need be.

    Raises CacheUnavailable if there is none within `config.startup_timeout_s`.
    """
    try:
        return address.connect(config.request_timeout_s)
    except OSError:
        pass  # there is none, or none any more
    address.prepare()
    deadline_s = time.monotonic() + config.startup_timeout_s
    try:
        with _elected(address, deadline_s) as lock:
            try:
                return address.connect(config.request_timeout_s)
            except OSError:
                _start(address, config, lock, deadline_s)
            return address.connect(config.request_timeout_s)
    except OSError as error:
        raise CacheUnavailable(f"no node could be started: {error}") from error


@contextmanager
def _elected(address: Address, deadline_s: float) -> Iterator[IO[str]]:
    """Hold the lock: whoever has it may start a node."""
    with address.lock.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise CacheUnavailable(
                        "another task is still starting the node"
                    ) from None
                time.sleep(_POLL_S)
        yield lock


def _start(
    address: Address, config: CacheConfig, lock: IO[str], deadline_s: float
) -> None:
    """Start a node; return when it listens.

    The lock is its standard input until then. So it is held on, and nobody starts a
    second one, if this process is killed meanwhile.
    """
    # -P: what lies in the working directory is none of the node's modules.
    command = [sys.executable, "-P", "-m", "sparkcache.node", str(address.executor_dir)]
    command += [str(executor_pid()), msgspec.json.encode(config).decode()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with address.log.open("ab") as log:
        said_before = log.tell()
        starter = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=lock,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        status = starter.wait(max(deadline_s - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        starter.kill()
        starter.wait()
        raise CacheUnavailable("the node did not start in time") from None
    if status:
        said = address.log.read_bytes()[said_before:].decode(errors="replace")
        reason = said.strip().rpartition("\n")[2] or "it said nothing"
        raise CacheUnavailable(f"the node did not start (status {status}): {reason}")
    _log.info("node started, in %s", address.directory)
