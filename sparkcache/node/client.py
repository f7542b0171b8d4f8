"""A task's side: runs from the node, or without it if need be."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from sparkcache.errors import CacheUnavailable
from sparkcache.fetch.direct import DirectReader
from sparkcache.memory import map_run, read_run
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.launch import connect
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    Failed,
    Finish,
    Open,
    Refused,
    Served,
    Streamed,
    Take,
    ToTask,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.config import CacheConfig
    from sparkcache.connector import DecodedRun
    from sparkcache.consumers import Plan
    from sparkcache.fetch.stretch import Scan
    from sparkcache.model import ReadToken

_log = logging.getLogger(__name__)


def read_scan(
    scan: Scan,
    *,
    token: ReadToken,
    epoch: int,
    settings: CacheConfig,
    plans: tuple[Plan, ...],
) -> Iterator[DecodedRun]:
    """Yield the runs of a scan in order, each from the node if there is one.

    What the caller was given before the run it was given last must no longer be
    referenced when it asks for another. Raises SourceError.

    Args:
        scan: What to read.
        token: As whom.
        epoch: Orders settings and plans: a later stage has a higher one.
        settings: The node's settings.
        plans: The plans under way.

    """
    node: NodeReader | None = None
    direct = DirectReader(scan)
    try:
        if settings.enabled:
            node = _open_node(
                Open(PROTOCOL_VERSION, scan, token, epoch, settings, plans)
            )
        for at, stretch in enumerate(scan.stretches):
            for index in range(stretch.start, stretch.stop):
                if node is not None:
                    try:
                        yield node.take((at, index))
                        continue
                    except CacheUnavailable as error:
                        _log.warning("reading on without the cache: %s", error)
                        node.close()
                        node = None
                yield direct.read(stretch, index)
        if node is not None:
            node.finish()
    finally:
        direct.close()
        if node is not None:
            node.close()


class NodeReader:
    """One task's connection to its node."""

    def __init__(self, channel: Channel[ToTask]) -> None:
        self._channel = channel
        self._current: tuple[int, int] | None = None
        self._mapped: tuple[tuple[int, int], ...] = ()

    def take(self, place: tuple[int, int]) -> DecodedRun:
        """Return a run; the one before is then finished with.

        Raises SourceError if it cannot be had at all, CacheUnavailable if not here.
        """
        read, released = self._settle()
        self._channel.send(Take(*place, read, released))
        message, fd = self._channel.receive()
        match message:
            case Served() if fd is not None:
                self._current = place
                self._mapped += (place,)
                try:
                    return map_run(fd, message.size_bytes)
                finally:
                    os.close(fd)
            case Streamed() if fd is not None:
                self._current = place
                return read_run(fd)
            case Failed():
                raise message.error()
            case Refused():
                raise CacheUnavailable(message.reason)
        raise CacheUnavailable(f"an answer out of order: {type(message).__name__}")

    def finish(self) -> None:
        """Say that the last run is finished with, too."""
        read, _ = self._settle()
        self._channel.send(Finish(read))

    def close(self) -> None:
        """Hang up; the node takes it that nothing is mapped any more."""
        self._channel.close()

    def _settle(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return what was read, and what is mapped no longer, since the last time.

        Spark still refers to the last batch while it asks for the next one. So of the
        run just read only those before it are surely let go of.
        """
        read = () if self._current is None else (self._current,)
        released, self._mapped = self._mapped[:-1], self._mapped[-1:]
        self._current = None
        return read, released


def _open_node(message: Open) -> NodeReader | None:
    """Begin to read through the executor's node; None if there is none to be had."""
    try:
        address = Address.of_this_executor()
        sock = connect(address, message.settings)
        channel: Channel[ToTask] = Channel(sock, ToTask)
        channel.send(message)
    except CacheUnavailable as error:
        _log.warning("reading without the cache: %s", error)
        return None
    return NodeReader(channel)
