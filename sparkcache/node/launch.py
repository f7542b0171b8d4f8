"""Starting the node: the plugin or the first task does so, one process at a time.

A node that has been silent for too long is suspected by the tasks that waited for it.
The next one of their processes that holds the lock asks it once more, ends it if it
does not answer, and starts another.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NoReturn

import msgspec

from sparkcache.errors import CacheUnavailable
from sparkcache.node.address import peer_pid
from sparkcache.node.channel import Channel, SilentPeerError
from sparkcache.node.lifetime import executor_pid
from sparkcache.node.loader_limits import usable_cores, warn_if_too_large
from sparkcache.node.messages import GetMetrics, ToTask

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import IO

    from sparkcache.config import CacheConfig, NodeConfig
    from sparkcache.fetch.scan import Scan
    from sparkcache.node.address import Address

REFUSED_STATUS = 69  # EX_UNAVAILABLE of sysexits.h
_POLL_S = 0.02
# A node that works sends something twice a second to each task that waits.
_MAX_SILENCE_S = 30.0
_PROBE_S = 3.0
_RETRY_AFTER_S = 60.0

_log = logging.getLogger(__name__)

suspected: set[int] = set()
"""Process ids of nodes that were silent for too long."""

_given_up: dict[str, tuple[float, str]] = {}
"""When to try again and why not before, by directory, where a node is of no use."""


class NodeRefusedError(CacheUnavailable):
    """No node can run on this machine, and another attempt would fail as well."""


def connect(address: Address, config: NodeConfig, scan: Scan) -> socket.socket:
    """Return a connection to the executor's node, which is started if need be.

    Its timeout is how long the node may be silent. Raises CacheUnavailable if no node
    is reached within `startup_timeout_s`, or if the node hangs.

    Args:
        address: The address of the node.
        config: The settings with which a node is started.
        scan: The scan, whose timeouts apply.

    """
    silence_s = min(scan.storage.request_timeout_s, _MAX_SILENCE_S)
    again_s, problem = _given_up.get(str(address.directory), (0.0, ""))
    wait_s = again_s - time.monotonic()
    if wait_s > 0:
        raise CacheUnavailable(f"{problem}; next attempt in {wait_s:.0f} s")
    try:
        sock = _reach(address, silence_s)
        if sock is not None:
            return sock
        address.prepare()
        deadline_s = time.monotonic() + scan.config.startup_timeout_s
        with _starter_lock(address, deadline_s) as lock:
            sock = _reach(address, silence_s) or _reach_suspected(address, silence_s)
            if sock is not None:
                return sock
            _start(address, config, executor_pid(), lock, deadline_s)
            return address.connect(silence_s)
    except OSError as error:
        raise CacheUnavailable(f"could not start the node: {error}") from error


def ensure_started(address: Address, config: CacheConfig, pid: int) -> None:
    """Start a node unless one listens. Raises CacheUnavailable.

    Args:
        address: The address of the node.
        config: The settings with which a node is started.
        pid: The executor's JVM.

    """
    try:
        address.prepare()
        deadline_s = time.monotonic() + config.startup_timeout_s
        with _starter_lock(address, deadline_s) as lock:
            sock = _reach(address, _PROBE_S)
            if sock is None:
                _start(address, config.node, pid, lock, deadline_s)
            else:
                sock.close()
    except OSError as error:
        raise CacheUnavailable(f"could not start the node: {error}") from error


def suspect(pid: int) -> None:
    """Record that a node was silent for too long, so that it is asked before use."""
    suspected.add(pid)


def _reach(address: Address, silence_s: float) -> socket.socket | None:
    """Return a connection; None if no node listens, or one that is suspected."""
    try:
        sock = address.connect(silence_s)
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    except TimeoutError as error:
        _give_up(address, f"the node is too busy: {error}")
    if peer_pid(sock) in suspected:
        sock.close()
        return None
    return sock


def _reach_suspected(address: Address, silence_s: float) -> socket.socket | None:
    """Return a connection to a suspected node that answers; otherwise end the node.

    The caller holds the lock.
    """
    try:
        sock = address.connect(_PROBE_S)
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    pid = peer_pid(sock)
    with closing(Channel[ToTask](sock, ToTask)) as channel:
        try:
            channel.send(GetMetrics())
            channel.receive()
            suspected.discard(pid)
        except SilentPeerError:  # so it still has this connection, and this pid
            _end(address, pid)
            return None
        except CacheUnavailable:
            return None
    return address.connect(silence_s)


def _end(address: Address, pid: int) -> None:
    """Kill a node that hangs; return when nobody listens any longer."""
    _log.warning("ending the node %d, which hangs", pid)
    if not pid:
        _give_up(address, "the node hangs, and its process is in another namespace")
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        _give_up(address, f"the node {pid} hangs and cannot be ended: {error}")
    end_s = time.monotonic() + _PROBE_S
    while time.monotonic() < end_s:
        try:
            address.connect(_PROBE_S).close()
        except (ConnectionError, FileNotFoundError):
            suspected.discard(pid)
            return
        time.sleep(_POLL_S)
    _give_up(address, f"the node {pid} hangs, and was killed in vain")


def _give_up(address: Address, problem: str) -> NoReturn:
    again_s = time.monotonic() + _RETRY_AFTER_S
    _given_up[str(address.directory)] = again_s, problem
    raise CacheUnavailable(problem)


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
    address: Address, config: NodeConfig, pid: int, lock: IO[str], deadline_s: float
) -> None:
    """Start a node for the executor whose JVM is `pid`; return when it listens.

    The node inherits the lock as its standard input until then. So the lock stays held,
    and no second node is started, if this process is killed meanwhile.
    """
    # -P: the working directory is no source of modules for the node.
    command = [sys.executable, "-P", "-m", "sparkcache.node", str(address.executor_dir)]
    command += [str(pid), msgspec.json.encode(config).decode()]
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
    warn_if_too_large(config, usable_cores(pid))
