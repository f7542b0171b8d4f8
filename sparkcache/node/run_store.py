"""The runs that a node holds, and the memory in which they lie.

Joins what decides (the cache, of either engine) with what it decides about: descriptors
of runs that have memory of their own, and the segments of a ring. What the cache gives
up is freed here and nowhere else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparkcache.cache import PlannedCache
from sparkcache.memory.segments import Segments
from sparkcache.node.messages import Served, ServedFromSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparkcache.cache import CachedRun, Engine, Settings
    from sparkcache.demand import PartitionRead
    from sparkcache.model import RunKey, Slot
    from sparkcache.node.reader_session import Peer

# What a pass lets go of at most, 1 to 5 ms of work: a descriptor costs 6 us to close,
# and its memory 0.2 ms a MiB.
_PASS_RUNS = 128
_PASS_BYTES = 16 << 20

_log = logging.getLogger(__name__)


class RunStore:
    """Runs in shared memory, by key.

    Args:
        settings: The limits and the policy to begin with.
        now: The time, in seconds from any moment on; never goes backwards.
        close_fd: Closes a descriptor.
        on_free: Told of every run that is held no longer.

    Attributes:
        planned: What decides.
        peak_bytes: The most that was ever held.
        close_fd: As given.

    """

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], float],
        close_fd: Callable[[int], None],
        on_free: Callable[[CachedRun[int]], None],
    ) -> None:
        self.planned = PlannedCache[int](settings)
        self.peak_bytes = 0
        self._coming: Settings | None = None  # once nothing is overdue by the present
        self._now = now
        self.close_fd = close_fd
        self._on_free = on_free
        self._segments = Segments()
        self._gone: tuple[int, ...] = ()
        self._pass_runs = _PASS_RUNS

    def __repr__(self) -> str:
        return f"RunStore({self.planned!r}, {self._segments!r})"

    @property
    def runs(self) -> Engine[int]:
        """The cache, of whichever engine."""
        return self.planned.runs

    # Memory for a run, and the run in it

    def reserve(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Make room for a run; None if there can be none, or others need it more."""
        now_s = self._now()
        if self._changes_engine():
            return None
        if not self.runs.has_spare(size_bytes):  # then what is overdue goes first
            self.free(self.runs.expire(now_s, self._pass_runs, size_bytes))
        slot, evicted = self.planned.reserve(key, size_bytes, now_s)
        self.free(evicted)
        if len(self._segments) > len(self.runs.segments):
            self._follow()
        if slot is not None and not self._exists(slot):
            self.runs.unreserve(slot)
            slot = None
        self.peak_bytes = max(self.peak_bytes, self.runs.held_bytes)
        return slot

    def reserve_spare(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Take room for a run if nothing has to go for it."""
        spare = self.runs.has_spare(size_bytes)
        return self.reserve(key, size_bytes) if spare else None

    def writable_fd(self, slot: Slot, loader: Peer) -> int | None:
        """Return a descriptor that a loader needs to write there, if it needs one."""
        return (
            None
            if slot.segment is None
            else self._segments.to_write(slot.segment, loader)
        )

    def insert(
        self, key: RunKey, slot: Slot, fd: int | None, *, ahead: bool
    ) -> CachedRun[int] | None:
        """Keep a run that was written; None if it is here already.

        The descriptor is that of its own memory, if it has that.
        """
        now_s = self._now()
        overdue = self.runs.expire_run(key, now_s)
        if overdue is not None:  # or it would be kept in the place of this one
            self.free([overdue])
        value = -1 if fd is None else fd
        run = self.planned.insert(key, value, slot=slot, now_s=now_s, ahead=ahead)
        if run is None and fd is not None:
            self.close_fd(fd)
        return run

    # Reading

    def peek(self, key: RunKey) -> CachedRun[int] | None:
        """Look up a run without any effect."""
        return self.runs.peek(key, self._now())

    def abandon(self, run: CachedRun[int]) -> None:
        """Note that nobody is coming to a run that was loaded ahead."""
        self.runs.abandon(run)

    def take(
        self, partition_read: PartitionRead, key: RunKey, now_s: float
    ) -> CachedRun[int] | None:
        """Look up the run that a reader comes to; None if it has to be loaded."""
        return self.planned.take(partition_read, key, now_s)

    def finish(self, partition_read: PartitionRead, ordinal: int, key: RunKey) -> None:
        """Note that a reader has finished with a run."""
        self.free(self.planned.finish(partition_read, ordinal, key, self._now()))

    def hand_over(self, runs: Sequence[CachedRun[int]], reader: Peer) -> None:
        """Send a reader a run; or several, if all are in segments it has got."""
        first = runs[0].slot
        if first.segment is None:
            reader.send(Served(first.size_bytes), runs[0].value)
            return
        fd = self._segments.to_read(first.segment, reader)
        number = None if fd is None else first.segment.number
        reader.send(ServedFromSegment(tuple(run.slot for run in runs), number), fd)

    def can_follow(self, run: CachedRun[int], first: Slot, reader: Peer) -> bool:
        """Tell whether a run can be handed over together with another one."""
        segment = run.slot.segment
        if segment is None or first.segment is None:
            return False
        return segment == first.segment or self._segments.is_known(segment, reader)

    # Time, and changes

    def configure(self, settings: Settings) -> None:
        """Take over new settings with the next `expire` that is not behind."""
        self._coming = settings

    def expire(self) -> bool:
        """Let go of some of what has outlived its time; tell whether there is more.

        Nobody waits for longer than that takes, and nobody is served what is overdue.
        """
        now_s = self._now()
        self.planned.expire_ended_streams(now_s)
        self.free(self.runs.expire(now_s, self._pass_runs, _PASS_BYTES))
        if self._coming is not None and not self.runs.is_behind(now_s):
            self._change(self._coming, now_s)
        self._follow()
        return self.runs.is_behind(now_s)

    def end(self, plan_ids: Iterable[str]) -> None:
        """Forget plans for good, and what nobody else waits for."""
        self.free(self.planned.end(plan_ids, self._now()))

    def discarded(self) -> tuple[int, ...]:
        """Return the numbers of segments that were freed since the last time."""
        gone, self._gone = self._gone, ()
        return gone

    def free(self, removed: Iterable[CachedRun[int]]) -> None:
        """Free what the cache has given up."""
        for run in removed:
            self._on_free(run)
            if run.slot.segment is None:
                self.close_fd(run.value)

    def close(self) -> None:
        """Let go of all segments; what readers map stays as it is."""
        self._segments.close()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self.planned.check(self._now())
        assert all(number in self.runs.segments for number in self._segments.numbers)
        for run in self.runs.runs():
            assert run.slot.segment is None or run.slot.segment in self._segments

    def _follow(self) -> None:
        """Free the segments that the ring does without."""
        self._gone += self._segments.keep_only(self.runs.segments)

    def _exists(self, slot: Slot) -> bool:
        """Create the segment that a run will lie in, unless it is there."""
        if slot.segment is None or slot.segment in self._segments:
            return True
        self._follow()
        try:
            self._segments.create(slot.segment)
        except OSError as error:
            _log.warning("no memory for a segment: %s", error)
            return False
        return True

    def _changes_engine(self) -> bool:
        coming, present = self._coming, self.runs.settings
        return coming is not None and _kind(coming) != _kind(present)

    def _change(self, settings: Settings, now_s: float) -> None:
        """Take over settings; if that is another engine, once nobody reads here."""
        if not self._changes_engine():
            self.free(self.runs.configure(settings, now_s))
        else:
            self.free(self.runs.clear())
            if not self.runs.is_idle:
                return
            self.planned.change_engine(settings)
        self._coming = None


def _kind(settings: Settings) -> bool | None:
    return None if settings.ring is None else settings.ring.copies
