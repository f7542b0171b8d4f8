"""The node's event loop: sockets, loaders and timers, and the Service they drive."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from typing import TYPE_CHECKING

from sparkcache.node.address import Address, require_same_user
from sparkcache.node.channel import AsyncChannel
from sparkcache.node.lifetime import watch
from sparkcache.node.loader import fork_loader
from sparkcache.node.messages import (
    Ask,
    Decoded,
    Ended,
    EndPlans,
    Failed,
    Finish,
    FromLoader,
    FromTask,
    Loaded,
    Open,
    Passed,
    Streamed,
    Take,
)
from sparkcache.node.service import Service
from sparkcache.node.task import Task

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from sparkcache.config import CacheConfig

_TICK_S = 0.5
_RESTART_S = 0.1
_SPARE_DESCRIPTORS = 512

_log = logging.getLogger(__name__)


def serve(address: Address, config: CacheConfig, executor_pid: int) -> None:
    """Listen, tell the starter so by ending its wait, and serve until the end.

    The process that calls this ends at once, with status 0; the node goes on as a
    child in a session of its own.
    """
    listener = address.listen()
    if os.fork():
        os._exit(0)
    os.setsid()
    loop = asyncio.new_event_loop()
    server = _Server(loop, listener, config)
    watch(loop, pid=executor_pid, directory=address.executor_dir, on_end=loop.stop)
    loop.add_signal_handler(signal.SIGTERM, loop.stop)
    try:
        loop.run_forever()
    finally:
        server.close()
        address.remove_socket()
        _log.info("node ends: %s", server.service.metrics())


class _Server:
    def __init__(
        self, loop: AbstractEventLoop, listener: socket.socket, config: CacheConfig
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._loaders: dict[int, AsyncChannel[FromLoader]] = {}
        self._ending = False
        self.service = Service(
            config,
            max_runs=_raise_descriptor_limit() - _SPARE_DESCRIPTORS,
            now=loop.time,
            close_fd=os.close,
            on_configure=self._adjust_loaders,
        )
        self._adjust_loaders(config)
        listener.setblocking(False)
        loop.add_reader(listener, self._accept)
        self._tick()

    def close(self) -> None:
        self._ending = True
        for channel in list(self._loaders.values()):
            channel.close()
        self._listener.close()

    def _tick(self) -> None:
        self.service.tick()
        self._loop.call_later(_TICK_S, self._tick)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            _log.warning("no connection: %s", error)
            return
        try:
            require_same_user(sock)
        except OSError as error:
            _log.warning("connection refused: %s", error)
            sock.close()
            return
        _TaskConnection(self._loop, self.service, sock)

    def _adjust_loaders(self, config: CacheConfig) -> None:
        wanted = config.loaders or len(os.sched_getaffinity(0))
        while len(self._loaders) < wanted:
            self._start_loader()
        for _ in range(len(self._loaders) - wanted):
            peer = self.service.loads.retire()
            if peer is None:
                break  # it is retired when its load has ended
            peer.close()

    def _start_loader(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = fork_loader(theirs)
        theirs.close()
        channel: AsyncChannel[FromLoader] = AsyncChannel(
            self._loop,
            ours,
            FromLoader,
            on_message=lambda message, fd: self._loader_says(pid, message, fd),
            on_close=lambda: self._loader_gone(pid),
        )
        self._loaders[pid] = channel
        self.service.loader_ready(channel)

    def _loader_says(self, pid: int, message: FromLoader, fd: int | None) -> None:
        service, peer = self.service, self._loaders[pid]
        match message:
            case Decoded():
                service.decoded(peer, message)
            case Passed():
                service.passed(peer, message)
            case Loaded() if fd is not None:
                service.loaded(peer, message.index, fd)
            case Streamed() if fd is not None:
                service.streamed(peer, fd)
                os.close(fd)
            case Failed():
                service.failed(peer, message)
            case Ended():
                service.ended(peer, message)
                self._adjust_loaders(service.config)
            case _:
                peer.close()

    def _loader_gone(self, pid: int) -> None:
        peer = self._loaders.pop(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.service.loader_gone(peer)
        # Later, so that a loader that cannot live does not keep the node busy.
        self._loop.call_later(_RESTART_S, self._restart_loaders)

    def _restart_loaders(self) -> None:
        if not self._ending:
            self._adjust_loaders(self.service.config)


class _TaskConnection:
    def __init__(
        self, loop: AbstractEventLoop, service: Service, sock: socket.socket
    ) -> None:
        self._service = service
        self._channel: AsyncChannel[FromTask] = AsyncChannel(
            loop, sock, FromTask, on_message=self._says, on_close=self._gone
        )
        self._task = Task(self._channel)

    def _says(self, message: FromTask, fd: int | None) -> None:
        if fd is not None:
            os.close(fd)
        service, task = self._service, self._task
        match message:
            case Open() if task.scan is None:
                service.open(task, message)
            case Take() if task.scan is not None:
                service.take(task, message)
            case Finish() if task.scan is not None:
                service.finish(task, message)
            case EndPlans():
                service.end_plans(message)
            case Ask():
                service.ask(self._channel)
            case _:
                self._channel.close()

    def _gone(self) -> None:
        self._service.close(self._task)


def _raise_descriptor_limit() -> int:
    """Allow as many descriptors as may be: one is needed for each run."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
