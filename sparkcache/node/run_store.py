"""The runs that a node holds, and the memory that they are stored in.

Connects the cache (of either engine), which decides, with the memory: descriptors of
runs that have their own memory, and the segments of a ring. All runs that the cache
removes are freed here.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING

import msgspec

from sparkcache.cache import Counters, PlannedCache
from sparkcache.filters import RunStatistics
from sparkcache.memory.segments import Segments
from sparkcache.metrics import METRICS
from sparkcache.node.messages import Served, ServedFromSegment
from sparkcache.node.opening import PathPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkcache.cache import CachedRun, Engine, Settings, Ttl
    from sparkcache.demand import ExtentOffset, PartitionRead, Plan, ReaderIdentity
    from sparkcache.fetch.scan import Scan
    from sparkcache.model import Position, RunKey, Slot
    from sparkcache.node.reader_session import Peer, ReaderSession

# Limits of one pass of expiry, 1 to 5 ms of work: a descriptor costs 6 us to close,
# and its memory 0.2 ms per MiB.
_PASS_RUNS = 128
_PASS_BYTES = 16 << 20

# Limits for runs that are sent together: each stays pinned until the task has read on.
_BYTES_TOGETHER = 256 << 10
_BYTES_TOGETHER_BY_PATH = 4 << 20
_SHARE_TOGETHER = 64
_OF_CORE = [spec.name for spec in fields(Counters) if spec.name in METRICS]

_log = logging.getLogger(__name__)


class RunStore:
    """Runs in shared memory, by key.

    Args:
        settings: The initial limits and policy.
        now: The time in seconds from any origin; never decreases.
        close_fd: Closes a descriptor.
        on_free: Called with every run that is no longer held.

    """

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], float],
        close_fd: Callable[[int], None],
        on_free: Callable[[CachedRun[int]], None],
    ) -> None:
        _warn_about(settings.ttl)
        self._planned = PlannedCache[int](settings)
        self._peak_bytes = 0
        self._pending_settings: Settings | None = None  # applied once no run is overdue
        self._now = now
        self._close_fd = close_fd
        self._on_free = on_free
        self._segments = Segments()
        self._freed_segments: tuple[int, ...] = ()
        self._pass_runs = _PASS_RUNS
        self._statistics: dict[RunKey, bytes] = {}  # packed: there may be many runs

    def __repr__(self) -> str:
        return f"RunStore({self._planned!r}, {self._segments!r})"

    # Plans, and the readers of their partitions

    def begin(self, plans: Iterable[Plan], *, late: bool) -> list[Plan]:
        """Begin plans: see `PlannedCache.begin`."""
        return self._planned.begin(plans, self._now(), late=late)

    def reach(self, query: str, reached: Mapping[str, Position]) -> list[Plan]:
        """Record how far a query has read its topics; return the changed plans."""
        return self._planned.reach(query, reached, self._now())

    def end(self, plan_ids: Iterable[str]) -> None:
        """End plans for good, and evict the runs that only they expected."""
        self._free(self._planned.end(plan_ids, self._now()))

    def catch_up(self, plan_ids: Iterable[str], scan: Scan) -> None:
        """Note planned reads that were done on other executors too."""
        known = (run_slice for run_slice in scan.slices if run_slice.reads)
        for run_slice in known:
            for index in range(run_slice.start, run_slice.stop):
                key, reads = run_slice.key(index), run_slice.reads
                self._planned.catch_up(plan_ids, key, reads, self._now())

    def open_read(
        self,
        reader: ReaderIdentity,
        plan_ids: Iterable[str],
        extents: Sequence[ExtentOffset],
        first: Position,
        stop: Position,
    ) -> PartitionRead:
        """Begin to read a partition: see `Forecast.open`."""
        return self._planned.open(reader, plan_ids, extents, first, stop)

    def take(
        self, partition_read: PartitionRead, key: RunKey, now_s: float
    ) -> CachedRun[int] | None:
        """Return the run that a reader asks for; None if it has to be loaded."""
        return self._planned.take(partition_read, key, now_s)

    def finish(self, partition_read: PartitionRead, ordinal: int, key: RunKey) -> None:
        """Record that a reader has read a run."""
        self._free(self._planned.finish(partition_read, ordinal, key, self._now()))

    def close_read(self, partition_read: PartitionRead) -> None:
        """End an attempt at a partition, complete or not."""
        self._planned.close(partition_read)

    # Memory for runs, and runs in memory

    def reserve(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Reserve memory for a run; None if impossible, or if others need it more."""
        now_s = self._now()
        if self._changes_engine():
            return None
        if not self._runs.has_spare(size_bytes):  # overdue runs are evicted first
            self._free(self._runs.expire(now_s, self._pass_runs, size_bytes))
        slot, evicted = self._planned.reserve(key, size_bytes, now_s)
        self._free(evicted)
        if len(self._segments) > len(self._runs.segments):
            self._drop_unused_segments()
        if slot is not None and not self._ensure_segment(slot):
            self._runs.unreserve(slot)
            slot = None
        self._peak_bytes = max(self._peak_bytes, self._runs.held_bytes)
        return slot

    def reserve_spare(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Reserve memory for a run if that evicts nothing."""
        has_spare = self._runs.has_spare(size_bytes)
        return self.reserve(key, size_bytes) if has_spare else None

    def unreserve(self, slot: Slot) -> None:
        """Release reserved memory."""
        self._runs.unreserve(slot)

    def writable_fd(self, slot: Slot, loader: Peer) -> int | None:
        """Return the descriptor that a loader still needs to write a slot, if any."""
        return (
            None
            if slot.segment is None
            else self._segments.to_write(slot.segment, loader)
        )

    def insert(
        self, key: RunKey, slot: Slot, fd: int | None, *, ahead: bool
    ) -> CachedRun[int] | None:
        """Hold a run that was written; None if it is held already.

        The descriptor is that of the run's own memory, if it has its own.
        """
        now_s = self._now()
        overdue = self._runs.expire_run(key, now_s)
        if overdue is not None:  # or it would be held instead of this one
            self._free([overdue])
        value = -1 if fd is None else fd
        run = self._planned.insert(key, value, slot=slot, now_s=now_s, ahead=ahead)
        if run is None and fd is not None:
            self._close_fd(fd)
        return run

    def describe(self, run: CachedRun[int], statistics: RunStatistics | None) -> None:
        """Keep the statistics of a run for as long as the run."""
        if statistics is not None and run.slot.segment is None:
            self._statistics[run.key] = msgspec.msgpack.encode(statistics)

    def statistics(self, key: RunKey) -> RunStatistics | None:
        """Return what is known of the rows of a run."""
        known = self._statistics.get(key)
        if known is None:
            return None
        return msgspec.msgpack.decode(known, type=RunStatistics)

    # Runs and their readers

    def get(self, key: RunKey) -> CachedRun[int] | None:
        """Return a run if it is held; this counts as an access."""
        return self._runs.get(key, self._now())

    def peek(self, key: RunKey, now_s: float | None = None) -> CachedRun[int] | None:
        """Return a run if it is held, by default now, without any effect."""
        return self._runs.peek(key, self._now() if now_s is None else now_s)

    def is_held(self, key: RunKey) -> bool:
        """Return whether a run is held."""
        return self.peek(key) is not None

    def pin(self, run: CachedRun[int]) -> None:
        """Record that a reader maps a run."""
        self._runs.pin(run)

    def unpin(self, run: CachedRun[int]) -> None:
        """Record that a reader has unmapped a run."""
        self._runs.unpin(run)

    def abandon(self, run: CachedRun[int]) -> None:
        """Record that no reader is expected for a run that was loaded ahead."""
        self._runs.abandon(run)

    def send_runs(
        self,
        runs: Mapping[tuple[int, int], CachedRun[int]],
        session: ReaderSession,
    ) -> None:
        """Send a session runs, by index; several only if all `can_follow`."""
        reader = session.peer
        first = next(iter(runs.values()))
        segment = first.slot.segment
        if segment is None and isinstance(reader, PathPeer):
            reader.send_runs(runs, session.unmapped, session.outcome)
        elif segment is None:
            reader.send(Served(first.size_bytes), first.value)
        else:
            fd = self._segments.to_read(segment, reader)
            number = None if fd is None else segment.number
            slots = tuple(run.slot for run in runs.values())
            reader.send(ServedFromSegment(slots, number), fd)

    def has_followers(self, first: CachedRun[int], reader: Peer) -> bool:
        """Return whether any run can be sent together with this one."""
        return first.slot.segment is not None or isinstance(reader, PathPeer)

    def can_follow(self, run: CachedRun[int], first: Slot, reader: Peer) -> bool:
        """Return whether a run can be sent together with another one.

        A message carries one descriptor, but any number of paths.
        """
        segment = run.slot.segment
        if segment is None or first.segment is None:
            return segment == first.segment and isinstance(reader, PathPeer)
        return segment == first.segment or self._segments.is_known(segment, reader)

    def max_bytes_together(self, reader: Peer) -> int:
        """Return how large runs that are sent together may be."""
        if isinstance(reader, PathPeer):
            max_bytes = self._runs.settings.max_bytes
            return min(_BYTES_TOGETHER_BY_PATH, max_bytes // _SHARE_TOGETHER)
        return _BYTES_TOGETHER

    # Time, and changes of settings

    def configure(self, settings: Settings) -> None:
        """Apply new settings at the next `expire` that leaves no run overdue."""
        if settings.ttl != self._runs.settings.ttl:
            _warn_about(settings.ttl)
        self._pending_settings = settings

    def expire(self) -> bool:
        """Evict some of the overdue runs; return whether more are overdue.

        Each call is short, so that nobody waits long; overdue runs are never served.
        """
        now_s = self._now()
        self._planned.expire_ended_streams(now_s)
        self._free(self._runs.expire(now_s, self._pass_runs, _PASS_BYTES))
        if self._pending_settings is not None and not self._runs.has_overdue(now_s):
            self._change(self._pending_settings, now_s)
        self._drop_unused_segments()
        return self._runs.has_overdue(now_s)

    def clear(self, topic: str | None) -> None:
        """Evict all runs, or those of one topic; readers keep what they map."""
        runs = self._runs
        self._free(runs.clear() if topic is None else runs.invalidate_topic(topic))

    def take_freed_segments(self) -> tuple[int, ...]:
        """Return the numbers of the segments freed since the last call."""
        freed, self._freed_segments = self._freed_segments, ()
        return freed

    def metrics(self) -> dict[str, int]:
        """Return what is held and what was evicted, by the names of `Metrics`."""
        runs = self._runs
        core, accounting = runs.counters, runs.accounting
        return {
            **{name: getattr(core, name) for name in _OF_CORE},
            "evicted_explicitly": core.invalidated
            - core.evicted_by_last_read
            - core.evicted_by_plan_end,
            "runs": len(runs),
            "kept_bytes": runs.kept_bytes,
            "held_bytes": runs.held_bytes,
            "peak_bytes": self._peak_bytes,
            "pinned_runs": accounting.pinned.runs,
            "pinned_bytes": accounting.pinned.bytes,
            "in_flight_bytes": accounting.reserved.bytes,
        }

    def close(self) -> None:
        """Release all segments; readers keep their mappings."""
        self._segments.close()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._planned.check(self._now())
        assert all(number in self._runs.segments for number in self._segments.numbers)
        assert self._statistics.keys() <= {run.key for run in self._runs.runs()}
        for run in self._runs.runs():
            assert run.slot.segment is None or run.slot.segment in self._segments

    @property
    def _runs(self) -> Engine[int]:
        return self._planned.runs

    def _free(self, removed: Iterable[CachedRun[int]]) -> None:
        """Free the memory of runs that the cache has removed."""
        for run in removed:
            self._on_free(run)
            self._statistics.pop(run.key, None)
            if run.slot.segment is None:
                self._close_fd(run.value)

    def _drop_unused_segments(self) -> None:
        """Free the segments that the ring no longer uses."""
        self._freed_segments += self._segments.keep_only(self._runs.segments)

    def _ensure_segment(self, slot: Slot) -> bool:
        """Create the segment of a slot, unless it exists; return whether it does."""
        if slot.segment is None or slot.segment in self._segments:
            return True
        self._drop_unused_segments()
        try:
            self._segments.create(slot.segment)
        except OSError as error:
            _log.warning("could not create a segment: %s", error)
            return False
        return True

    def _changes_engine(self) -> bool:
        pending, current = self._pending_settings, self._runs.settings
        return pending is not None and _engine_kind(pending) != _engine_kind(current)

    def _change(self, settings: Settings, now_s: float) -> None:
        """Apply settings; another engine only once no reader has pinned a run."""
        if not self._changes_engine():
            self._free(self._runs.configure(settings, now_s))
        else:
            self._free(self._runs.clear())
            if not self._runs.is_idle:
                return
            self._planned.change_engine(settings)
        self._pending_settings = None


def _warn_about(ttl: Ttl) -> None:
    if ttl.after_read_s is not None and ttl.after_read_s > ttl.create_s:
        _log.warning(
            "runs are held longer after a read (%g s) than after creation (%g s)",
            ttl.after_read_s,
            ttl.create_s,
        )


def _engine_kind(settings: Settings) -> bool | None:
    return None if settings.ring is None else settings.ring.copies
