"""A task's side: runs from the node, or without it if need be."""

from __future__ import annotations

import logging
import os
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.errors import CacheUnavailable
from sparkcache.fetch.direct import DirectReader
from sparkcache.memory.pipe import read_run
from sparkcache.memory.sealed import map_run
from sparkcache.memory.segment import MappedSegments
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.launch import connect
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    Failed,
    Finish,
    KeepAlive,
    Open,
    Refused,
    Served,
    ServedFromSegment,
    Streamed,
    Take,
    ToTask,
)
from sparkcache.node.packed_open import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.config import CacheConfig
    from sparkcache.connector import DecodedRun
    from sparkcache.demand import Plan, ReaderIdentity
    from sparkcache.fetch.scan import RunSlice, Scan
    from sparkcache.model import Slot

RunIndex: TypeAlias = tuple[int, int]

_log = logging.getLogger(__name__)


def read_scan(
    scan: Scan,
    *,
    reader: ReaderIdentity,
    epoch: int,
    settings: CacheConfig,
    plans: tuple[Plan, ...],
    following: tuple[tuple[int, RunSlice], ...] = (),
    group: str = "",
) -> Iterator[DecodedRun]:
    """Yield the runs of a scan in order, each from the node if there is one.

    The node counts a run as read when the caller asks for the next one, and its memory
    until the caller refers to none of its batches. Raises SourceError.

    Args:
        scan: What to read.
        reader: As whom.
        epoch: Orders settings and plans: a later stage has a higher one.
        settings: The node's settings.
        plans: The plans under way.
        following: First stretches of partitions that come after this one, by partition.
        group: Whose the topic is, for the node to count by.

    """
    node = None
    if settings.enabled:
        node = _open_node(
            Open(
                PROTOCOL_VERSION,
                scan,
                reader,
                epoch,
                settings,
                plans,
                following,
                group,
            )
        )
    with closing(_Runs(scan, node)) as runs:
        for at, run_slice in enumerate(scan.slices):
            for index in range(run_slice.start, run_slice.stop):
                yield runs.read(at, index)
        runs.finish()


class _Runs:
    """Reads a scan through the node for as long as that goes well, then without."""

    def __init__(self, scan: Scan, node: NodeReader | None) -> None:
        self._scan = scan
        self._node = node
        self._direct = DirectReader(scan)

    def read(self, at: int, index: int) -> DecodedRun:
        """Return a run, by stretch and index; raises SourceError."""
        if self._node is not None:
            try:
                return self._node.take((at, index))
            except CacheUnavailable as error:
                _log.warning("reading on without the cache: %s", str(error))
                self._node.close()
                self._node = None
        return self._direct.read(self._scan.slices[at], index)

    def finish(self) -> None:
        """Say that the last run is finished with."""
        if self._node is not None:
            with suppress(CacheUnavailable):  # it is of no concern to this task
                self._node.finish()

    def close(self) -> None:
        """Give up what is open."""
        self._direct.close()
        if self._node is not None:
            self._node.close()


class NodeReader:
    """One task's connection to its node.

    The node counts a run until this process maps it no longer, and takes it that
    nothing is mapped when the connection ends. So the connection stays open, closed or
    not, as long as anybody refers to a batch that came through it.

    Args:
        channel: The connection, which it owns from now on.
        opening: What to say first.

    """

    def __init__(self, channel: Channel[ToTask], opening: Open) -> None:
        self._channel = channel
        self._opening: Open | None = opening
        self._timeout_s = opening.settings.request_timeout_s
        self._scan = opening.scan
        self._current: RunIndex | None = None
        self._read: list[RunIndex] = []
        self._mapped = 0
        self._unmapped: list[RunIndex] = []
        self._segments = MappedSegments()
        self._placed: dict[RunIndex, Slot] = {}  # not asked for yet
        self._is_closed = False

    def take(self, place: RunIndex) -> DecodedRun:
        """Return a run, by stretch and index; the one before is then finished with.

        Raises SourceError if it cannot be had at all, CacheUnavailable if not here.
        """
        self._finish_current()
        if place not in self._placed:
            return self._ask(place)
        self._current = place
        return self._find(place, self._placed.pop(place))

    def _ask(self, place: RunIndex) -> DecodedRun:
        """Have the node say where a run is, or send it."""
        if self._opening is not None:
            self._channel.send(packed(self._opening))
            self._opening = None
        self._channel.send(Take(*place, *self._settle()))
        message, fd = self._channel.receive()
        while isinstance(message, KeepAlive):
            message, fd = self._channel.receive()
        match message:
            case Served() if fd is not None:
                self._current = place
                return self._map(place, fd, message.size_bytes)
            case ServedFromSegment() if message.slots:
                self._add_segment(message, fd)
                places = _places_from(self._scan, place)
                self._placed.update(zip(places, message.slots, strict=False))
                self._current = place
                return self._find(place, self._placed.pop(place))
            case Streamed() if fd is not None:
                self._current = place
                return read_run(fd, self._timeout_s)
            case Failed():
                raise message.error()
            case Refused():
                raise CacheUnavailable(message.reason)
        raise CacheUnavailable(f"an answer out of order: {type(message).__name__}")

    def finish(self) -> None:
        """Say that the last run is finished with, too."""
        self._finish_current()
        self._channel.send(Finish(*self._settle()))

    def close(self) -> None:
        """Hang up, as soon as nothing is mapped any more."""
        self._is_closed = True
        if not self._mapped:
            self._channel.close()

    def _map(self, place: RunIndex, fd: int, size_bytes: int) -> DecodedRun:
        """Map a run that has memory of its own."""
        self._mapped += 1
        try:
            return map_run(fd, size_bytes, partial(self._on_unmap, place))
        finally:
            os.close(fd)

    def _find(self, place: RunIndex, slot: Slot) -> DecodedRun:
        """Find a run in a segment that is mapped already."""
        self._mapped += 1
        return self._segments.read(slot, partial(self._on_unmap, place))

    def _add_segment(self, message: ServedFromSegment, fd: int | None) -> None:
        """Map the segment that may have come along."""
        if fd is not None:
            try:
                if message.segment is not None:
                    self._segments.add(message.segment, fd)
            finally:
                os.close(fd)

    def _on_unmap(self, place: RunIndex) -> None:
        self._unmapped.append(place)
        self._mapped -= 1
        if self._is_closed:
            self.close()

    def _finish_current(self) -> None:
        if self._current is not None:
            self._read.append(self._current)
            self._current = None

    def _settle(self) -> tuple[tuple[RunIndex, ...], ...]:
        """Return what was read, and what was unmapped, since the last time."""
        read, self._read = tuple(self._read), []
        unmapped = list(self._placed)  # the reader has jumped over these
        self._placed.clear()
        while self._unmapped:  # more may come at any moment, from any thread
            unmapped.append(self._unmapped.pop())
        return read, tuple(unmapped)


def _places_from(scan: Scan, place: RunIndex) -> Iterator[RunIndex]:
    """Yield what a scan reads from a place on."""
    begin, first = place
    for at, run_slice in enumerate(scan.slices[begin:], begin):
        for index in range(first if at == begin else run_slice.start, run_slice.stop):
            yield at, index


def _open_node(message: Open) -> NodeReader | None:
    """Begin to read through the executor's node; None if there is none to be had."""
    try:
        address = Address.of_this_executor()
        sock = connect(address, message.settings)
    except CacheUnavailable as error:
        _log.warning("reading without the cache: %s", str(error))
        return None
    return NodeReader(Channel(sock, ToTask), message)
