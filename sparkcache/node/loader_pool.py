"""The loader processes of a node.

One is forked at the start, further ones when a load would have to wait for a loader. A
loader that keeps too much memory is ended after its load; a fresh one takes its place
when it is needed. If loaders die, or cannot be forked, the next one is forked after a
delay that grows until a load ends.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcache.memory.shared_counters import SharedCounters
from sparkcache.node.channel import AsyncChannel
from sparkcache.node.events import (
    LoaderClosed,
    LoaderEnded,
    LoaderMessage,
    LoaderReady,
    Tick,
)
from sparkcache.node.loader import fork_loader
from sparkcache.node.loader_limits import LoaderLimits, loader_limits, private_bytes
from sparkcache.node.messages import Decoded, Ended, FromLoader

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from sparkcache.config import NodeConfig
    from sparkcache.node.events import Event
    from sparkcache.node.reader_session import Peer

_RETRY_S, _MAX_RETRY_S = 0.1, 30.0

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Process:
    """A loader process.

    Attributes:
        pid: Its process id.
        spent: What it has counted: GETs, bytes received, retries.
        reported: The sums of what it has reported.

    """

    pid: int
    spent: SharedCounters
    reported: tuple[int, int, int] = (0, 0, 0)

    def report(self, message: Decoded | Ended) -> None:
        """Add what it reports with a run, or at the end of a load."""
        gets, received_bytes, retries = self.reported
        self.reported = (
            gets + message.gets,
            received_bytes + message.received_bytes,
            retries + message.retries,
        )

    def unreported(self) -> list[int]:
        """Return what it has counted and not reported."""
        counted = zip(self.spent.read(), self.reported, strict=True)
        return [spent - reported for spent, reported in counted]


class LoaderPool:
    """Forks loaders, connects them to the node, and ends them.

    Args:
        loop: The node's event loop.
        config: The initial settings.
        cores: How many cores the node may use.
        handle: Handles the loaders' events.

    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        config: NodeConfig,
        cores: int,
        handle: Callable[[Event], None],
    ) -> None:
        self._loop = loop
        self._cores = cores
        self._handle = handle
        self._processes: dict[Peer, _Process] = {}
        self._dying: dict[Peer, _Process] = {}
        self._limits: LoaderLimits = loader_limits(config, cores)
        self._delay_s = 0.0
        self._is_delayed = False

    def __repr__(self) -> str:
        return f"LoaderPool({len(self)} of {self._limits})"

    def __len__(self) -> int:
        return len(self._processes)

    def configure(self, config: NodeConfig) -> None:
        """Apply new settings."""
        self._limits = loader_limits(config, self._cores)

    def has_surplus(self) -> bool:
        """Return whether there are more loaders than the settings allow."""
        return len(self) > self._limits.most

    # Called by the service

    def can_start(self) -> bool:
        """Return whether another loader may be started now."""
        return len(self) < self._limits.most and not self._is_delayed

    def start(self) -> Peer | None:
        """Start another loader and return it; None if that fails."""
        try:
            return self._fork()
        except OSError as error:
            self._delay()
            _log.warning(
                "could not start a loader; next attempt in %g s: %s",
                self._delay_s,
                error,
            )
            return None

    def release(self, peer: Peer) -> bool:
        """Return whether a loader may begin another load; otherwise end it."""
        self._delay_s = 0.0
        size_bytes = private_bytes(self._processes[peer].pid)
        is_too_large = size_bytes > self._limits.share_bytes
        if is_too_large:
            _log.info(
                "ending a loader that keeps %d bytes, more than its share of %d",
                size_bytes,
                self._limits.share_bytes,
            )
        if is_too_large or self.has_surplus():
            self.end(peer)
            return False
        return True

    @property
    def size_bytes(self) -> int:
        """Memory of all loaders, as `private_bytes` counts it."""
        return sum(private_bytes(process.pid) for process in self._processes.values())

    # Called by the server

    def ensure_one(self) -> None:
        """Start a loader if there is none."""
        if not self._processes and self.can_start():
            peer = self.start()
            if peer is not None:
                self._handle(LoaderReady(peer))

    def end(self, peer: Peer) -> None:
        """End a loader that has nothing to do."""
        process = self._processes.pop(peer)
        peer.close()
        self._kill(process, peer)

    def reap(self) -> None:
        """Report the loaders whose processes have ended since the last call."""
        for peer, process in list(self._dying.items()):
            if os.waitpid(process.pid, os.WNOHANG)[0]:
                del self._dying[peer]
                self._handle(LoaderEnded(peer, *process.unreported()))
                process.spent.close()

    def close(self) -> None:
        """Kill all loaders."""
        for process in self._processes.values():
            os.kill(process.pid, signal.SIGKILL)

    def _fork(self) -> Peer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                process = _Process(0, SharedCounters(3))
                process.pid = fork_loader(theirs, process.spent)
            except OSError:
                ours.close()
                raise
        channel: AsyncChannel[FromLoader] = AsyncChannel(
            self._loop,
            ours,
            FromLoader,
            on_message=lambda message, fd: self._on_message(channel, message, fd),
            on_close=lambda: self._on_close(channel),
        )
        self._processes[channel] = process
        return channel

    def _on_message(self, peer: Peer, message: FromLoader, fd: int | None) -> None:
        if isinstance(message, Decoded | Ended):
            self._processes[peer].report(message)
        self._handle(LoaderMessage(peer, message, fd))

    def _on_close(self, peer: Peer) -> None:
        process = self._processes.pop(peer, None)
        if process is None:
            return  # the pool has ended it
        self._delay()
        self._handle(LoaderClosed(peer))
        self._kill(process, peer)
        self.reap()

    def _kill(self, process: _Process, peer: Peer) -> None:
        # No other process has this pid until it is reaped.
        os.kill(process.pid, signal.SIGKILL)
        self._dying[peer] = process

    def _delay(self) -> None:
        """Start no loader for a while, so that failures do not keep the node busy."""
        self._delay_s = min(max(2 * self._delay_s, _RETRY_S), _MAX_RETRY_S)
        if not self._is_delayed:
            self._is_delayed = True
            self._loop.call_later(self._delay_s, self._resume)

    def _resume(self) -> None:
        self._is_delayed = False
        self._handle(Tick())
        self.ensure_one()
