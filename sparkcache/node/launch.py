"""Starting the node: the first task that needs it does so, one at a time."""

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
from sparkcache.node.loader_limits import usable_cores, warn_if_too_large

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import IO

    from sparkcache.config import NodeConfig, ScanConfig
    from sparkcache.node.address import Address

REFUSED_STATUS = 69  # EX_UNAVAILABLE of sysexits.h
_POLL_S = 0.02

_log = logging.getLogger(__name__)


class NodeRefusedError(CacheUnavailable):
    """No node can run on this machine, and another attempt would fail as well."""


def connect(address: Address, config: NodeConfig, scan: ScanConfig) -> socket.socket:
    """Return a connection to the executor's node, which is started if need be.

    Raises CacheUnavailable if no node is reached within `scan.startup_timeout_s`.

    Args:
        address: The address of the node.
        config: The settings with which a node is started.
        scan: The timeouts.

    """
    try:
        return address.connect(scan.request_timeout_s)
    except OSError:
        pass  # no node is running
    address.prepare()
    deadline_s = time.monotonic() + scan.startup_timeout_s
    try:
        with _starter_lock(address, deadline_s) as lock:
            try:
                return address.connect(scan.request_timeout_s)
            except OSError:
                _start(address, config, lock, deadline_s)
            return address.connect(scan.request_timeout_s)
    except OSError as error:
        raise CacheUnavailable(f"could not start the node: {error}") from error


@contextmanager
def _starter_lock(address: Address, deadline_s: float) -> Iterator[IO[str]]:
    """Hold the lock: its holder may start a node."""
    with address.lock.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise CacheUnavailable(
                        "another task did not start the node within startup_timeout_s"
                    ) from None
                time.sleep(_POLL_S)
        yield lock


def _start(
    address: Address, config: NodeConfig, lock: IO[str], deadline_s: float
) -> None:
    """Start a node; return when it listens.

    The node inherits the lock as its standard input until then. So the lock stays held,
    and no second node is started, if this process is killed meanwhile.
    """
    # -P: the working directory is no source of modules for the node.
    command = [sys.executable, "-P", "-m", "sparkcache.node", str(address.executor_dir)]
    command += [str(executor_pid()), msgspec.json.encode(config).decode()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with address.log.open("ab") as log:
        log_offset = log.tell()
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
        raise CacheUnavailable(
            "the node did not start within startup_timeout_s"
        ) from None
    if status:
        output = address.log.read_bytes()[log_offset:].decode(errors="replace")
        reason = output.strip().rpartition("\n")[2] or "no output"
        kind = NodeRefusedError if status == REFUSED_STATUS else CacheUnavailable
        raise kind(f"the node did not start (status {status}): {reason}")
    _log.info("node started, in %s", address.directory)
    warn_if_too_large(config, usable_cores(executor_pid()))
