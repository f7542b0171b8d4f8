"""The ring's memory where runs are copied into it: segments, offsets, rotation.

Runs are written one behind the other into the newest segment. When it is full, the
oldest one is emptied, all of it at once, and becomes the newest: nothing is looked for,
whatever the number of topics, and no memory is ever freed.

Readers map segments, so one in which anybody still reads or writes is passed over, and
the next oldest takes its turn; if there is none, there is no room. What a turn would
have to give up is nothing where a segment has lost all its runs before.

Source: Apache Pulsar PIP-174 and Apache BookKeeper's ReadCache. Different here: room is
made before a run is written, so two runs never race for an offset and a run that fails
leaves it where it was; and a reader maps what is here, where there it gets a copy.
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
class _Filled(Generic[V]):
    """A segment and what is in it.

    Attributes:
        segment: Which one.
        end: Where the next run goes.
        busy: How many runs are being written to it, or mapped by a reader.
        runs: What look-ups find in it.
        gaps: Ends and begins of room that was given back, and has runs behind it.

    """

    segment: Segment
    end: int = 0
    busy: int = 0
    runs: dict[CachedRun[V], None] = field(default_factory=dict)
    gaps: dict[int, int] = field(default_factory=dict)

    def take(self, size_bytes: int) -> Slot:
        """Take room for a run that will be written."""
        slot = Slot(size_bytes, self.segment, self.end)
        self.end += size_bytes
        self.busy += 1
        return slot

    def give_back(self, slot: Slot) -> None:
        """Take room back that nothing was written to."""
        self.gaps[slot.offset + slot.size_bytes] = slot.offset
        while self.end in self.gaps:
            self.end = self.gaps.pop(self.end)

    def empty(self) -> list[CachedRun[V]]:
        """Begin anew; return what was in it."""
        runs = list(self.runs)
        self.end = 0
        self.runs.clear()
        self.gaps.clear()
        return runs

    @property
    def is_vacant(self) -> bool:
        """Whether nothing is in it, for anybody."""
        return not (self.busy or self.runs)


class CopiedSegments(Generic[V]):
    """Segments that are written one after the other, round and round."""

    def __init__(self, settings: Settings) -> None:
        self._segments: OrderedDict[int, _Filled[V]] = OrderedDict()  # oldest first
        self._vacant: dict[int, None] = {}
        self._numbers = count()
        self._held_bytes = 0
        self._configure(settings)

    def __repr__(self) -> str:
        return f"<{len(self._segments)} segments of {self._held_bytes} bytes together>"

    @property
    def held_bytes(self) -> int:
        """What counts towards the limit: all segments, however full."""
        return self._held_bytes

    @property
    def numbers(self) -> Collection[int]:
        """Of the segments that there are."""
        return self._segments.keys()

    def runs(self) -> Iterator[CachedRun[V]]:
        """Yield what look-ups find, the next to go first."""
        for filled in self._segments.values():
            yield from filled.runs

    def reserve(self, size_bytes: int) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Make room for a run; return it, and what lay in the way."""
        size_bytes = _aligned(size_bytes)
        evicted: list[CachedRun[V]] = []
        if size_bytes > self._segment_bytes:
            return None, evicted
        filled = self._with_room(size_bytes) or self._turn(evicted)
        if filled is None:
            return None, evicted
        self._vacant.pop(filled.segment.number, None)
        return filled.take(size_bytes), evicted

    def has_spare(self, size_bytes: int) -> bool:
        """Whether a run fits and nothing has to go for it."""
        size_bytes = _aligned(size_bytes)
        if size_bytes > self._segment_bytes:
            return False
        if self._with_room(size_bytes) is not None:
            return True
        vacant = (self._segments[number].segment for number in self._vacant)
        vacant_bytes = sum(segment.size_bytes for segment in vacant)
        return self._held_bytes - vacant_bytes + self._segment_bytes <= self._max_bytes

    def unreserve(self, slot: Slot) -> None:
        """Give back room that nothing was written to."""
        filled = self._of(slot)
        filled.give_back(slot)
        self._leave(filled)

    def keep(self, run: CachedRun[V]) -> None:
        """Take in a run that was written to its room."""
        filled = self._of(run.slot)
        filled.runs[run] = None
        self._leave(filled)

    def drop(self, run: CachedRun[V]) -> None:
        """Forget a run; its room is free when its segment is."""
        filled = self._of(run.slot)
        del filled.runs[run]
        self._note_vacant(filled)

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps a run."""
        self._of(run.slot).busy += 1

    def unpin(self, run: CachedRun[V]) -> None:
        """Note that a reader let go of it."""
        self._leave(self._of(run.slot))

    def configure(self, settings: Settings) -> list[CachedRun[V]]:
        """Change the size of the ring; return what no longer fits."""
        self._configure(settings)
        return self.shrink()

    def shrink(self) -> list[CachedRun[V]]:
        """Do without segments beyond the limit, as far as that can be."""
        evicted: list[CachedRun[V]] = []
        while self._held_bytes > self._max_bytes:
            filled = self._next()
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

    def _of(self, slot: Slot) -> _Filled[V]:
        if slot.segment is None or slot.segment.number not in self._segments:
            raise ValueError(f"{slot} is not of this ring: use what reserve() returned")
        return self._segments[slot.segment.number]

    def _with_room(self, size_bytes: int) -> _Filled[V] | None:
        """Return the newest segment if so much fits into it."""
        if not self._segments:
            return None
        newest = self._segments[next(reversed(self._segments))]
        fits = newest.end + size_bytes <= newest.segment.size_bytes
        return newest if fits else None

    def _turn(self, evicted: list[CachedRun[V]]) -> _Filled[V] | None:
        """Return an empty segment, the newest now; None if somebody is in them all."""
        while True:
            if not self._vacant and self._may_open():
                return self._open()
            filled = self._next()
            if filled is None:
                return None
            evicted += filled.empty()
            if self._is_as_set(filled.segment):
                self._segments.move_to_end(filled.segment.number)
                return filled
            self._discard(filled)

    def _may_open(self) -> bool:
        return self._held_bytes + self._segment_bytes <= self._max_bytes

    def _is_as_set(self, segment: Segment) -> bool:
        is_within = self._held_bytes <= self._max_bytes
        return is_within and segment.size_bytes == self._segment_bytes

    def _next(self) -> _Filled[V] | None:
        """Return the segment whose turn it is: a vacant one, or the oldest."""
        if self._vacant:
            return self._segments[next(iter(self._vacant))]
        filled = self._segments.values()
        return next((filled for filled in filled if not filled.busy), None)

    def _open(self) -> _Filled[V]:
        segment = Segment(next(self._numbers), self._segment_bytes)
        self._held_bytes += segment.size_bytes
        filled: _Filled[V] = _Filled(segment)
        self._segments[segment.number] = filled
        return filled

    def _discard(self, filled: _Filled[V]) -> None:
        self._held_bytes -= filled.segment.size_bytes
        self._vacant.pop(filled.segment.number, None)
        del self._segments[filled.segment.number]

    def _leave(self, filled: _Filled[V]) -> None:
        """Note that somebody is through with a segment."""
        filled.busy -= 1
        self._note_vacant(filled)

    def _note_vacant(self, filled: _Filled[V]) -> None:
        if filled.is_vacant:
            filled.empty()
            self._vacant[filled.segment.number] = None


def _aligned(size_bytes: int) -> int:
    if size_bytes < 0:
        raise ValueError(f"size_bytes is {size_bytes}: use 0 or more")
    blocks = max(-(-size_bytes // ALIGNMENT_BYTES), 1)
    return blocks * ALIGNMENT_BYTES
