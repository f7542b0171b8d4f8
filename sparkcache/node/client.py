"""A task's side: reads runs from the node, or directly if the node fails."""

from __future__ import annotations

import logging
import os
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.errors import CacheUnavailable, SourceError
from sparkcache.fetch.direct import DirectReader
from sparkcache.homes import Place
from sparkcache.memory.pipe import read_run
from sparkcache.memory.sealed import MappedBundle, map_run
from sparkcache.memory.segment import MappedSegments
from sparkcache.model import Slot
from sparkcache.node.address import Address, peer_pid
from sparkcache.node.channel import Channel, SilentPeerError
from sparkcache.node.direct_runs import DirectRuns
from sparkcache.node.launch import NodeRefusedError, connect, suspect
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    Failed,
    Finish,
    KeepAlive,
    LoadDirectly,
    Open,
    Refused,
    ReportLosses,
    Served,
    ServedFromSegment,
    Streamed,
    Take,
    ToTask,
)
from sparkcache.node.packed_open import packed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sparkcache.config import NodeConfig
    from sparkcache.connector import DecodedRun
    from sparkcache.demand import Plan, ReaderIdentity
    from sparkcache.fetch.scan import RunSlice, Scan
    from sparkcache.node.messages import Message
    from sparkcache.reported_loss import LossReport

RunIndex: TypeAlias = tuple[int, int]

_REPORT_TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)

_without_node: set[Path] = set()
"""Directories of executors on whose machine no node can run."""


def read_scan(
    scan: Scan,
    *,
    reader: ReaderIdentity,
    epoch: int,
    settings: NodeConfig,
    plans: tuple[Plan, ...],
    following: tuple[tuple[int, RunSlice], ...] = (),
    group: str = "",
    authority: int = 0,
    place: Place = Place.ANYWHERE,
) -> Iterator[DecodedRun]:
    """Yield the runs of a scan in order, from the node if there is one.

    The node counts a run as read when the caller asks for the next one, and counts its
    memory as long as the caller refers to any of its batches. Raises SourceError.

    Args:
        scan: The slices to read.
        reader: The identity under which the task reads.
        epoch: Orders settings and plans: a later stage has a higher epoch.
        settings: The settings for the node.
        plans: The plans under way.
        following: The first slices of later partitions, by partition.
        group: Who owns the topic, such as tenant and namespace, for the node's counts.
        authority: How much the settings count beside those of other tasks.
        place: Whether this executor is the home of the slices.

    """
    node = None
    if scan.config.enabled:
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
                authority,
                place=place,
                can_load=True,
            )
        )
    with closing(_Runs(scan, node)) as runs:
        for slice_index, run_slice in enumerate(scan.slices):
            for index in range(run_slice.start, run_slice.stop):
                yield runs.read(slice_index, index)
        runs.finish()


@contextmanager
def reporting(report: LossReport) -> Iterator[LossReport]:
    """Send a report, as it is at the end of the block, to this executor's node.

    Nothing is sent if no node runs here: the losses are then in the log alone.
    """
    try:
        yield report
    finally:
        if report:
            _send(ReportLosses(tuple(report.losses), report.not_listed))


def _send(message: Message) -> None:
    try:
        address = Address.of_this_executor()
        channel: Channel[ToTask] = Channel(address.connect(_REPORT_TIMEOUT_S), ToTask)
        with closing(channel):
            channel.send(message)
    except (CacheUnavailable, OSError) as error:
        _log.info("the node did not receive what was lost: %s", error)


class _Runs:
    """Reads a scan through the node until that fails, then directly."""

    def __init__(self, scan: Scan, node: NodeReader | None) -> None:
        self._scan = scan
        self._node = node
        self._direct = DirectReader(scan) if node is None else node.direct

    def read(self, slice_index: int, index: int) -> DecodedRun:
        """Return a run, by the index of its slice and its index; raises SourceError."""
        if self._node is not None:
            try:
                return self._node.take((slice_index, index))
            except CacheUnavailable as error:
                _log.warning("continuing without the cache: %s", str(error))
                if isinstance(error, SilentPeerError):
                    suspect(self._node.pid)
                self._node.close()
                self._node = None
        return self._direct.read(slice_index, index).decoded

    def finish(self) -> None:
        """Report that the last run is read."""
        if self._node is not None:
            with suppress(CacheUnavailable):  # this task has all of its runs
                self._node.finish()

    def close(self) -> None:
        """Close the GETs and the connection that may be open."""
        if self._node is not None:
            with suppress(CacheUnavailable):
                self._node.report()
            self._node.close()
        self._direct.close()


class NodeReader:
    """One task's connection to its node.

    The node counts a run as pinned until this process unmaps it, and assumes that
    nothing is mapped once the connection ends. So the connection stays open, even after
    `close`, as long as any batch that came through it is referred to.

    Args:
        channel: The connection, owned by the reader from now on.
        opening: The first message to send.
        pid: The node's process id.

    Attributes:
        direct: Loads what the node tells the task to load itself.

    """

    def __init__(self, channel: Channel[ToTask], opening: Open, pid: int) -> None:
        self.pid = pid
        self._channel = channel
        self._opening: Open | None = opening
        self._timeout_s = opening.scan.storage.request_timeout_s
        self._scan = opening.scan
        self.direct = DirectReader(opening.scan)
        self._direct_runs = DirectRuns(opening.scan, self.direct)
        self._current: RunIndex | None = None
        self._read: list[RunIndex] = []
        self._mapped = 0
        self._unmapped: list[RunIndex] = []
        self._segments = MappedSegments()
        self._bundle: MappedBundle | None = None
        self._slots: dict[RunIndex, Slot] = {}  # pinned, but not asked for yet
        self._is_closed = False

    def take(self, run_index: RunIndex) -> DecodedRun:
        """Return a run, by slice and index; the previous run then counts as read.

        Raises SourceError if the storage failed, CacheUnavailable if the node did or
        if it lacks credentials.
        """
        self._finish_current()
        if run_index in self._direct_runs:
            if self._direct_runs.is_report_due:
                self.report()
            return self._load(run_index)
        if run_index not in self._slots:
            return self._ask(run_index)
        self._current = run_index
        return self._find(run_index, self._slots.pop(run_index))

    def _ask(self, run_index: RunIndex) -> DecodedRun:
        """Request a run from the node, which replies with the run or its slot."""
        if self._opening is not None:
            self._channel.send(packed(self._opening))
            self._opening = None
        self.report()
        self._channel.send(Take(*run_index, *self._settle()))
        message, fd = self._channel.receive()
        while isinstance(message, KeepAlive):
            message, fd = self._channel.receive()
        match message:
            case Served(bundle=()) if fd is not None:
                self._current = run_index
                return self._map(run_index, fd, message.size_bytes)
            case Served() if fd is not None:
                self._add_bundle(run_index, fd, message)
                self._current = run_index
                return self._find(run_index, self._slots.pop(run_index))
            case ServedFromSegment():
                self._add_segment(message, fd)
                if message.slots:
                    run_indexes = _indexes_from(self._scan, run_index)
                    self._slots.update(zip(run_indexes, message.slots, strict=False))
                    self._current = run_index
                    return self._find(run_index, self._slots.pop(run_index))
            case LoadDirectly():
                self._direct_runs.begin(message)
                if run_index in self._direct_runs:
                    return self._load(run_index)
            case Streamed() if fd is not None:
                self._current = run_index
                return read_run(fd, self._timeout_s)
            case Failed(lacks_credentials=True):
                raise CacheUnavailable(f"the node was refused: {message.error()}")
            case Failed():
                raise message.error()
            case Refused():
                raise CacheUnavailable(message.reason)
        raise CacheUnavailable(f"unexpected reply to Take: {type(message).__name__}")

    def _load(self, run_index: RunIndex) -> DecodedRun:
        """Load a run as the node has laid it out."""
        try:
            return self._direct_runs.take()
        except SourceError as error:  # perhaps the node is wrong: whole slices are not
            raise CacheUnavailable(f"loading run {run_index}: {error}") from error

    def report(self) -> None:
        """Report the runs that the task has loaded itself. Raises CacheUnavailable."""
        message = self._direct_runs.report()
        if message is not None:
            self._channel.send(message)

    def finish(self) -> None:
        """Report that the last run, too, is read."""
        self._finish_current()
        self.report()
        self._channel.send(Finish(*self._settle()))

    def close(self) -> None:
        """Close the connection as soon as nothing is mapped any longer."""
        self._is_closed = True
        self._bundle = None
        if not self._mapped:
            self._channel.close()

    def _map(self, run_index: RunIndex, fd: int, size_bytes: int) -> DecodedRun:
        """Map a run that has its own memory."""
        self._mapped += 1
        try:
            return map_run(fd, size_bytes, partial(self._on_unmap, run_index))
        finally:
            os.close(fd)

    def _find(self, run_index: RunIndex, slot: Slot) -> DecodedRun:
        """Return a run from a segment that is mapped already."""
        self._mapped += 1
        on_unmap = partial(self._on_unmap, run_index)
        if slot.segment is not None or self._bundle is None:
            return self._segments.read(slot, on_unmap)
        run = self._bundle.read(slot.offset, slot.size_bytes, on_unmap)
        if not self._slots:
            self._bundle = None
        return run

    def _add_bundle(self, run_index: RunIndex, fd: int, message: Served) -> None:
        """Map the memory of several runs, from a run on."""
        run_indexes = _indexes_from(self._scan, run_index)
        slots = (
            Slot(size_bytes, None, offset) for offset, size_bytes in message.bundle
        )
        self._slots.update(zip(run_indexes, slots, strict=False))
        try:
            self._bundle = MappedBundle(fd)
        finally:
            os.close(fd)

    def _add_segment(self, message: ServedFromSegment, fd: int | None) -> None:
        """Map the segment whose descriptor came with a message, if one did."""
        if fd is not None:
            try:
                if message.segment is not None:
                    self._segments.add(message.segment, fd)
            finally:
                os.close(fd)

    def _on_unmap(self, run_index: RunIndex) -> None:
        self._unmapped.append(run_index)
        self._mapped -= 1
        if self._is_closed:
            self.close()

    def _finish_current(self) -> None:
        self._direct_runs.finish_current()
        if self._current is not None:
            self._read.append(self._current)
            self._current = None

    def _settle(self) -> tuple[tuple[RunIndex, ...], ...]:
        """Return the runs read, and the runs unmapped, since the last call."""
        read, self._read = tuple(self._read), []
        unmapped = list(self._slots)  # the reader has skipped these
        self._slots.clear()
        self._bundle = None
        while self._unmapped:  # any thread may add more at any moment
            unmapped.append(self._unmapped.pop())
        return read, tuple(unmapped)


def _indexes_from(scan: Scan, start: RunIndex) -> Iterator[RunIndex]:
    """Yield the indexes of the runs that a scan reads, from one index on."""
    first_slice, first_run = start
    for slice_index, run_slice in enumerate(scan.slices[first_slice:], first_slice):
        for index in range(
            first_run if slice_index == first_slice else run_slice.start, run_slice.stop
        ):
            yield slice_index, index


def _open_node(message: Open) -> NodeReader | None:
    """Connect to the executor's node; None if it cannot be reached."""
    try:
        address = Address.of_this_executor()
        if address.directory in _without_node:
            return None  # as logged once
        sock = connect(address, message.settings, message.scan)
    except CacheUnavailable as error:
        _log.warning("reading without the cache: %s", str(error))
        if isinstance(error, NodeRefusedError):
            _without_node.add(address.directory)
        return None
    return NodeReader(Channel(sock, ToTask), message, peer_pid(sock))
