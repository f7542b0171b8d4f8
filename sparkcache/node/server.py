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

from sparkcache.node.address import Address, require_same_user
from sparkcache.node.channel import AsyncChannel, PatientChannel
from sparkcache.node.events import (
    LoaderClosed,
    LoaderEnded,
    LoaderMessage,
    LoaderReady,
    TaskClosed,
    TaskMessage,
    Tick,
)
from sparkcache.node.lifetime import watch
from sparkcache.node.loader import fork_loader
from sparkcache.node.messages import Ended, FromLoader, FromTask, PackedOpen
from sparkcache.node.packed_open import unpacked
from sparkcache.node.reader_session import ReaderSession
from sparkcache.node.service import Service

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from sparkcache.config import NodeConfig
    from sparkcache.node.reader_session import Peer

_TICK_S = 0.5
_RETRY_S = 0.1
_RESERVED_DESCRIPTORS = 512

_log = logging.getLogger(__name__)


def serve(address: Address, config: NodeConfig, executor_pid: int) -> None:
    """Listen, report this by ending the calling process, and serve until the end.

    The calling process exits with status 0; the node goes on as a child in a session of
    its own.
    """
    listener = address.listen()
    if os.fork():
        os._exit(0)
    listener.listen(socket.SOMAXCONN)  # so that peers see the pid of this process
    os.setsid()
    _release_standard_input()
    loop = asyncio.new_event_loop()
    server = _Server(loop, listener, config)
    _watch_socket(loop, address)
    watch(loop, pid=executor_pid, directory=address.executor_dir, on_end=loop.stop)
    loop.add_signal_handler(signal.SIGTERM, loop.stop)
    try:
        loop.run_forever()
    finally:
        address.remove_socket()
        server.close()
        _log.info("node ended: %s", server.service.metrics())


class _Server:
    def __init__(
        self, loop: AbstractEventLoop, listener: socket.socket, config: NodeConfig
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._loaders: dict[Peer, int] = {}
        self._dying: dict[int, Peer] = {}
        self.service = Service(
            config,
            max_runs=_max_runs(),
            now=loop.time,
            close_fd=os.close,
            on_configure=self._adjust_loaders,
            name=f"{os.getpid()}-{time.time_ns():x}",
        )
        self._adjust_loaders(config)
        listener.setblocking(False)
        self._listen()
        self._tick()
        self._expire()

    def close(self) -> None:
        self.service.stop()
        self._listener.close()
        for pid in self._loaders.values():
            os.kill(pid, signal.SIGKILL)

    def _tick(self) -> None:
        self._loop.call_later(_TICK_S, self._tick)
        self.service.handle(Tick())
        for pid in list(self._dying):
            self._reap(pid)

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

    def _adjust_loaders(self, config: NodeConfig) -> None:
        target = config.loaders or len(os.sched_getaffinity(0))
        while len(self._loaders) < target:
            try:
                self._start_loader()
            except OSError as error:
                _log.warning("could not start a loader: %s", error)
                self._loop.call_later(_RETRY_S, self._restart_loaders)
                break
        while len(self._loaders) > target:
            peer = self.service.retire_loader()
            if peer is None:
                break  # all are busy: one is retired when its load has ended
            peer.close()
            self._kill(self._loaders.pop(peer), peer)

    def _start_loader(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                pid = fork_loader(theirs)
            except OSError:
                ours.close()
                raise
        channel: AsyncChannel[FromLoader] = AsyncChannel(
            self._loop,
            ours,
            FromLoader,
            on_message=lambda message, fd: self._on_loader_message(
                channel, message, fd
            ),
            on_close=lambda: self._on_loader_close(channel),
        )
        self._loaders[channel] = pid
        self.service.handle(LoaderReady(channel))

    def _on_loader_message(
        self, loader: Peer, message: FromLoader, fd: int | None
    ) -> None:
        self.service.handle(LoaderMessage(loader, message, fd))
        if isinstance(message, Ended):
            self._adjust_loaders(self.service.config)

    def _on_loader_close(self, peer: Peer) -> None:
        pid = self._loaders.pop(peer, None)
        if pid is None:
            return  # retired
        self.service.handle(LoaderClosed(peer))
        self._kill(pid, peer)
        # Later, so that a loader that dies at once does not keep the node busy.
        self._loop.call_later(_RETRY_S, self._restart_loaders)

    def _restart_loaders(self) -> None:
        self._adjust_loaders(self.service.config)

    def _kill(self, pid: int, peer: Peer) -> None:
        os.kill(pid, signal.SIGKILL)  # no other process has this pid until it is reaped
        self._dying[pid] = peer
        self._reap(pid)

    def _reap(self, pid: int) -> None:
        if os.waitpid(pid, os.WNOHANG)[0]:
            self.service.handle(LoaderEnded(self._dying.pop(pid)))


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
        try:
            request = unpacked(message) if isinstance(message, PackedOpen) else message
        except ValueError as error:
            _log.warning("closing a task's connection: %s", error)
            self._channel.close()
            return
        self._service.handle(TaskMessage(self._session, request))

    def _on_close(self) -> None:
        self._service.handle(TaskClosed(self._session))


def _watch_socket(loop: AbstractEventLoop, address: Address) -> None:
    """Stop the loop once nobody can reach this node any longer."""
    if address.owns_socket():
        loop.call_later(_TICK_S, _watch_socket, loop, address)
    else:
        _log.warning("the node ends: its socket was removed or replaced")
        loop.stop()


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
