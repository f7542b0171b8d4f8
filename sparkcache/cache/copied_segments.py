"""Ring memory into which runs are copied: segments, offsets, rotation.

Runs are written one after the other into the newest segment. When it is full, the
oldest segment is emptied as a whole and becomes the newest. Rotation searches nothing,
whatever the number of topics, and never frees memory.

Readers map segments, so rotation skips a segment that is still read or written and
takes the next oldest; without such a segment no memory can be reserved. A vacant
segment, which has lost all its runs before, is reused first and costs no run.

Source: Apache Pulsar PIP-174 and Apache BookKeeper's ReadCache. Different here: memory
is reserved before a run is written, so two runs never race for an offset, and a failed
run leaves the offset unchanged; and readers map the segment, where there they get a
copy.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkcache.model import Segment, Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.settings import Settings

V = TypeVar("V")

ALIGNMENT_BYTES = 64


@dataclass(eq=False, slots=True)
class _RingSegment(Generic[V]):
    """A segment and its contents.

    Attributes:
        segment: The segment.
        end: Offset at which the next run is written.
        busy: How many runs are being written to it, plus its pins.
        runs: Its runs that look-ups find.
        gaps: Start offset, by end offset, of returned slots that runs follow.

    """

    segment: Segment
    end: int = 0
    busy: int = 0
    runs: dict[CachedRun[V], None] = field(default_factory=dict)
    gaps: dict[int, int] = field(default_factory=dict)

    def take(self, size_bytes: int) -> Slot:
        """Reserve a slot for a run that will be written."""
        slot = Slot(size_bytes, self.segment, self.end)
        self.end += size_bytes
        self.busy += 1
        return slot

    def give_back(self, slot: Slot) -> None:
        """Take back a slot that was not written."""
        self.gaps[slot.offset + slot.size_bytes] = slot.offset
        while self.end in self.gaps:
            self.end = self.gaps.pop(self.end)

    def empty(self) -> list[CachedRun[V]]:
        """Reset the segment to empty; return the runs that it had."""
        runs = list(self.runs)
        self.end = 0
        self.runs.clear()
        self.gaps.clear()
        return runs

    @property
    def is_vacant(self) -> bool:
        """Whether the segment has no run, reservation or pin."""
        return not (self.busy or self.runs)


class CopiedSegments(Generic[V]):
    """Segments that are written one after the other, in a ring."""

    def __init__(self, settings: Settings) -> None:
        self._segments: OrderedDict[int, _RingSegment[V]] = (
            OrderedDict()
        )  # oldest first
        self._vacant: dict[int, None] = {}
        self._numbers = count()
        self._held_bytes = 0
        self._configure(settings)

    def __repr__(self) -> str:
        return f"<{len(self._segments)} segments of {self._held_bytes} bytes together>"

    @property
    def held_bytes(self) -> int:
        """Bytes that count towards the limit: all segments, however full."""
        return self._held_bytes

    @property
    def numbers(self) -> Collection[int]:
        """Numbers of the existing segments."""
        return self._segments.keys()

    def runs(self) -> Iterator[CachedRun[V]]:
        """Yield the runs that look-ups find, the next to be evicted first."""
        for filled in self._segments.values():
            yield from filled.runs

    def reserve(self, size_bytes: int) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Reserve memory for a run; return its slot, if any, and the evicted runs."""
        size_bytes = _aligned(size_bytes)
        evicted: list[CachedRun[V]] = []
        if size_bytes > self._segment_bytes:
            return None, evicted
        filled = self._newest_with_room(size_bytes) or self._rotate(evicted)
        if filled is None:
            return None, evicted
        self._vacant.pop(filled.segment.number, None)
        return filled.take(size_bytes), evicted

    def has_spare(self, size_bytes: int) -> bool:
        """Return whether a run fits without evicting any run."""
        size_bytes = _aligned(size_bytes)
        if size_bytes > self._segment_bytes:
            return False
        if self._newest_with_room(size_bytes) is not None:
            return True
        vacant = (self._segments[number].segment for number in self._vacant)
        vacant_bytes = sum(segment.size_bytes for segment in vacant)
        return self._held_bytes - vacant_bytes + self._segment_bytes <= self._max_bytes

    def unreserve(self, slot: Slot) -> None:
        """Return a slot that was not written."""
        filled = self._segment_of(slot)
        filled.give_back(slot)
        self._release(filled)

    def keep(self, run: CachedRun[V]) -> None:
        """Add a run that was written to its slot."""
        filled = self._segment_of(run.slot)
        filled.runs[run] = None
        self._release(filled)

    def drop(self, run: CachedRun[V]) -> None:
        """Forget a run; its memory is reused with its segment."""
        filled = self._segment_of(run.slot)
        del filled.runs[run]
        self._note_vacant(filled)

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps a run."""
        self._segment_of(run.slot).busy += 1

    def unpin(self, run: CachedRun[V]) -> None:
        """Note that a reader unmapped a run."""
        self._release(self._segment_of(run.slot))

    def configure(self, settings: Settings) -> list[CachedRun[V]]:
        """Change the size of the ring; return the runs that no longer fit."""
        self._configure(settings)
        return self.shrink()

    def shrink(self) -> list[CachedRun[V]]:
        """Discard segments above the limit, except those in use; return their runs."""
        evicted: list[CachedRun[V]] = []
        while self._held_bytes > self._max_bytes:
            filled = self._next_to_empty()
            if filled is None:
                break
            evicted += filled.empty()
            self._discard(filled)
        return evicted

    def check(self) -> None:
        """Assert the invariants. For tests."""
        held_bytes = 0
        for number, filled in self._segments.items():
            held_bytes += filled.segment.size_bytes
            assert filled.segment.number == number
            assert (number in self._vacant) == filled.is_vacant
            assert not filled.is_vacant or filled.end == 0
            end = 0
            for run in sorted(filled.runs, key=lambda run: run.slot.offset):
                assert run.slot.segment == filled.segment
                assert run.slot.offset % ALIGNMENT_BYTES == 0
                assert end <= run.slot.offset
                end = run.slot.offset + run.size_bytes
            assert end <= filled.end <= filled.segment.size_bytes
            assert filled.busy >= sum(run.pins for run in filled.runs)
        assert held_bytes == self._held_bytes
        assert self._vacant.keys() <= self._segments.keys()

    def _configure(self, settings: Settings) -> None:
        assert settings.ring is not None, "settings of a ring"
        self._max_bytes = settings.max_bytes
        self._segment_bytes = settings.ring.segment_bytes

    def _segment_of(self, slot: Slot) -> _RingSegment[V]:
        if slot.segment is None or slot.segment.number not in self._segments:
            raise ValueError(
                f"{slot} is not a slot of this ring: use one that reserve() returned"
            )
        return self._segments[slot.segment.number]

    def _newest_with_room(self, size_bytes: int) -> _RingSegment[V] | None:
        """Return the newest segment if this many bytes fit into it."""
        if not self._segments:
            return None
        newest = self._segments[next(reversed(self._segments))]
        fits = newest.end + size_bytes <= newest.segment.size_bytes
        return newest if fits else None

    def _rotate(self, evicted: list[CachedRun[V]]) -> _RingSegment[V] | None:
        """Make an empty segment the newest; return None if all segments are in use."""
        while True:
            if not self._vacant and self._may_open():
                return self._open()
            filled = self._next_to_empty()
            if filled is None:
                return None
            evicted += filled.empty()
            if self._has_current_size(filled.segment):
                self._segments.move_to_end(filled.segment.number)
                return filled
            self._discard(filled)

    def _may_open(self) -> bool:
        return self._held_bytes + self._segment_bytes <= self._max_bytes

    def _has_current_size(self, segment: Segment) -> bool:
        is_within = self._held_bytes <= self._max_bytes
        return is_within and segment.size_bytes == self._segment_bytes

    def _next_to_empty(self) -> _RingSegment[V] | None:
        """Return the next segment to empty: a vacant one, or the oldest not in use."""
        if self._vacant:
            return self._segments[next(iter(self._vacant))]
        filled = self._segments.values()
        return next((filled for filled in filled if not filled.busy), None)

    def _open(self) -> _RingSegment[V]:
        segment = Segment(next(self._numbers), self._segment_bytes)
        self._held_bytes += segment.size_bytes
        filled: _RingSegment[V] = _RingSegment(segment)
        self._segments[segment.number] = filled
        return filled

    def _discard(self, filled: _RingSegment[V]) -> None:
        self._held_bytes -= filled.segment.size_bytes
        self._vacant.pop(filled.segment.number, None)
        del self._segments[filled.segment.number]

    def _release(self, filled: _RingSegment[V]) -> None:
        """Note that a reader or writer has finished with a segment."""
        filled.busy -= 1
        self._note_vacant(filled)

    def _note_vacant(self, filled: _RingSegment[V]) -> None:
        if filled.is_vacant:
            filled.empty()
            self._vacant[filled.segment.number] = None


def _aligned(size_bytes: int) -> int:
    if size_bytes < 0:
        raise ValueError(f"size_bytes is {size_bytes}: use 0 or more")
    blocks = max(-(-size_bytes // ALIGNMENT_BYTES), 1)
    return blocks * ALIGNMENT_BYTES
