"""The node's event loop: sockets, loaders and timers, which drive the Service."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from sparkcache.memory.memfd import create_memfd
from sparkcache.node.address import Address, require_same_user
from sparkcache.node.channel import PatientChannel
from sparkcache.node.events import TaskClosed, TaskMessage, Tick
from sparkcache.node.launch import REFUSED_STATUS
from sparkcache.node.lifetime import watch
from sparkcache.node.loader_limits import usable_cores, warn_if_too_large
from sparkcache.node.loader_pool import LoaderPool
from sparkcache.node.messages import FromTask, OpenPartition, PackedOpen, Refused
from sparkcache.node.node_log import limit_log
from sparkcache.node.opening import PathPeer, opened
from sparkcache.node.packed_open import unpacked
from sparkcache.node.reader_session import ReaderSession
from sparkcache.node.service import Service

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from pathlib import Path

    from sparkcache.config import NodeConfig
    from sparkcache.node.events import Event, TaskRequest

_TICK_S = 0.5
_LOG_TICK_S = 5.0
_RETRY_S = 0.1
_MAX_IDLE_S = 60.0  # of a loader
_RESERVED_DESCRIPTORS = 512

_log = logging.getLogger(__name__)


def serve(address: Address, config: NodeConfig, executor_pid: int) -> None:
    """Listen, report this by ending the calling process, and serve until the end.

    The calling process exits with status 0; the node goes on as a child in a session of
    its own. Where no node can run, it exits with REFUSED_STATUS.
    """
    _require_memory()
    listener = address.listen()
    if os.fork():
        os._exit(0)
    listener.listen(socket.SOMAXCONN)  # so that peers see the pid of this process
    os.setsid()
    _release_standard_input()
    loop = asyncio.new_event_loop()
    server = _Server(loop, listener, config, usable_cores(executor_pid))
    _watch_socket(loop, address)
    watch(loop, pid=executor_pid, directory=address.executor_dir, on_end=loop.stop)
    loop.add_signal_handler(signal.SIGTERM, loop.stop)
    _watch_log(loop, address.log)
    try:
        loop.run_forever()
    finally:
        address.remove_socket()
        server.close()
        _log.info("node ended: %s", server.service.metrics())


def _watch_log(loop: AbstractEventLoop, log: Path) -> None:
    limit_log(log)
    loop.call_later(_LOG_TICK_S, _watch_log, loop, log)


class _Server:
    def __init__(
        self,
        loop: AbstractEventLoop,
        listener: socket.socket,
        config: NodeConfig,
        cores: int,
    ) -> None:
        warn_if_too_large(config, cores)
        self._loop = loop
        self._listener = listener
        self._cores = cores
        self._loaders = LoaderPool(loop, config, cores, self._handle)
        self.service = Service(
            config,
            max_runs=_max_runs(),
            now=loop.time,
            close_fd=os.close,
            on_configure=self._configure,
            loaders=self._loaders,
            name=f"{os.getpid()}-{time.time_ns():x}",
        )
        self._loaders.ensure_one()
        listener.setblocking(False)
        self._listen()
        self._tick()
        self._expire()

    def close(self) -> None:
        self.service.stop()
        self._listener.close()
        self._loaders.close()

    def _handle(self, event: Event) -> None:
        self.service.handle(event)

    def _tick(self) -> None:
        self._loop.call_later(_TICK_S, self._tick)
        self.service.handle(Tick())
        self._loaders.reap()
        self._retire_loaders()

    def _expire(self) -> None:
        again_s = _TICK_S
        try:
            if self.service.expire():
                again_s = 0  # after the messages received meanwhile
        finally:
            self._loop.call_later(again_s, self._expire)

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            _log.warning("could not accept a connection: %s", error)
            # Later, so that a lack of descriptors does not keep the node busy.
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_RETRY_S, self._listen)
            return
        try:
            require_same_user(sock)
        except OSError as error:
            _log.warning("refused a connection: %s", error)
            sock.close()
            return
        _TaskConnection(self._loop, self.service, sock)

    def _configure(self, config: NodeConfig) -> None:
        warn_if_too_large(config, self._cores)
        self._loaders.configure(config)
        self._retire_loaders()

    def _retire_loaders(self) -> None:
        """End idle loaders: those beyond the limit, and those idle for long."""
        while self._loaders.has_surplus() and self._retire_loader():
            pass  # busy ones end after their loads
        while len(self._loaders) > 1 and self._retire_loader(_MAX_IDLE_S):
            pass

    def _retire_loader(self, idle_s: float = 0.0) -> bool:
        """End the loader that is idle for longest, if it is for so long."""
        peer = self.service.retire_loader(idle_s)
        if peer is not None:
            self._loaders.end(peer)
        return peer is not None


class _TaskConnection:
    def __init__(
        self, loop: AbstractEventLoop, service: Service, sock: socket.socket
    ) -> None:
        self._service = service
        self._channel = PatientChannel[FromTask](
            loop, sock, FromTask, on_message=self._on_message, on_close=self._on_close
        )
        self._session = ReaderSession(self._channel)

    def _on_message(self, message: FromTask, _: int | None) -> None:
        if isinstance(self._session.peer, PathPeer):
            self._session.peer.take_back()
        request: TaskRequest
        try:
            match message:
                case PackedOpen():
                    request = unpacked(message)
                case OpenPartition():
                    opening = opened(message)
                    if opening is None:
                        self._channel.send(Refused("the session does without a cache"))
                        return
                    self._session.peer = PathPeer(self._channel)
                    request = opening
                case _:
                    request = message
        except ValueError as error:
            _log.warning("closing a task's connection: %s", error)
            self._channel.close()
            return
        self._service.handle(TaskMessage(self._session, request))

    def _on_close(self) -> None:
        if isinstance(self._session.peer, PathPeer):
            self._session.peer.take_back()
        self._service.handle(TaskClosed(self._session))


def _watch_socket(loop: AbstractEventLoop, address: Address) -> None:
    """Stop the loop once nobody can reach this node any longer."""
    if address.owns_socket():
        loop.call_later(_TICK_S, _watch_socket, loop, address)
    else:
        _log.warning("the node ends: its socket was removed or replaced")
        loop.stop()


def _require_memory() -> None:
    """End this process if the kernel denies the memory that runs are held in."""
    try:
        os.close(create_memfd())
    except OSError as error:
        print(f"memfd_create, which the cache needs, fails: {error}", file=sys.stderr)
        sys.exit(REFUSED_STATUS)


def _release_standard_input() -> None:
    """Close the lock that the starter passed as standard input."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _max_runs() -> int:
    """Raise the descriptor limit to its maximum; return how many runs that allows."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(_RESERVED_DESCRIPTORS, limit // 2)
