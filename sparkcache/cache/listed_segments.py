"""The ring's memory where each run has its own: segments are lists of runs.

Runs are added to the newest list until it is full, and the oldest list goes, all of it
at once, when there is no room. A run's memory is freed with its last reader, whatever
becomes of its list.

Source: Apache Pulsar PIP-174, where entries are retained and not copied. Different
here: the bytes of a run count until its last reader lets go, and a list that went
takes its count along.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkcache.model import Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.memory_accounting import MemoryAccounting
    from sparkcache.cache.settings import Settings

V = TypeVar("V")


@dataclass(eq=False, slots=True)
class _Listed(Generic[V]):
    """A segment: runs of so many bytes together."""

    size_bytes: int = 0
    runs: dict[CachedRun[V], None] = field(default_factory=dict)


class ListedSegments(Generic[V]):
    """Lists of runs that are given up whole, the oldest first.

    Args:
        settings: The limits.
        holdings: What is held.

    """

    numbers: Collection[int] = ()  # there is no memory but that of the runs

    def __init__(self, settings: Settings, accounting: MemoryAccounting) -> None:
        self._accounting = accounting
        self._lists: OrderedDict[_Listed[V], None] = OrderedDict()  # oldest first
        self._list_of: dict[CachedRun[V], _Listed[V]] = {}
        self._settings = settings

    def __repr__(self) -> str:
        return f"<{len(self._lists)} lists of {len(self._list_of)} runs together>"

    @property
    def held_bytes(self) -> int:
        """What counts towards the limit: kept, reserved and lent."""
        return self._accounting.held.bytes

    def runs(self) -> Iterator[CachedRun[V]]:
        """Yield what look-ups find, the next to go first."""
        for listed in self._lists:
            yield from listed.runs

    def reserve(self, size_bytes: int) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Make room for a run; return it, and what lay in the way."""
        settings = self._settings
        size_bytes = settings.rounded(size_bytes)
        limits = settings.max_bytes, settings.max_runs
        if size_bytes > self._segment_bytes or not self._accounting.could_fit(
            size_bytes, *limits
        ):
            return None, []
        return Slot(size_bytes), self._give_up(size_bytes, 1)

    def has_spare(self, size_bytes: int) -> bool:
        """Whether a run fits and nothing has to go for it."""
        held, settings = self._accounting.held, self._settings
        most_bytes = min(settings.max_bytes - held.bytes, self._segment_bytes)
        return settings.rounded(size_bytes) <= most_bytes and (
            held.runs < settings.max_runs
        )

    def unreserve(self, slot: Slot) -> None:
        """Give back room that nothing was written to."""

    def keep(self, run: CachedRun[V]) -> None:
        """Take in a run that was written to its room."""
        newest = next(reversed(self._lists), None)
        if newest is None or newest.size_bytes + run.size_bytes > self._segment_bytes:
            newest = _Listed()
            self._lists[newest] = None
        newest.size_bytes += run.size_bytes
        newest.runs[run] = None
        self._list_of[run] = newest

    def drop(self, run: CachedRun[V]) -> None:
        """Forget a run, and its list with the last one of it."""
        listed = self._list_of.pop(run)
        listed.size_bytes -= run.size_bytes
        del listed.runs[run]
        if not listed.runs:
            del self._lists[listed]

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps a run."""

    def unpin(self, run: CachedRun[V]) -> None:
        """Note that a reader let go of it."""

    def configure(self, settings: Settings) -> list[CachedRun[V]]:
        """Change the limits; return what no longer fits."""
        self._settings = settings
        return self.shrink()

    def shrink(self) -> list[CachedRun[V]]:
        """Give up what is beyond the limits, as far as that can be."""
        return self._give_up(0, 0)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        for listed in self._lists:
            assert listed.runs
            assert listed.size_bytes == sum(run.size_bytes for run in listed.runs)
            assert all(self._list_of[run] is listed for run in listed.runs)
            assert all(run.slot.segment is None for run in listed.runs)
        assert len(self._list_of) == sum(len(listed.runs) for listed in self._lists)

    @property
    def _segment_bytes(self) -> int:
        assert self._settings.ring is not None, "settings of a ring"
        return self._settings.ring.segment_bytes

    def _give_up(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Return what goes, list by list, so that so much more is within the limits."""
        held, settings = self._accounting.held, self._settings
        excess_bytes = held.bytes + size_bytes - settings.max_bytes
        excess_runs = held.runs + runs - settings.max_runs
        evicted: list[CachedRun[V]] = []
        while self._lists and (excess_bytes > 0 or excess_runs > 0):
            listed, _ = self._lists.popitem(last=False)
            evicted += listed.runs
            freed = [run.size_bytes for run in listed.runs if not run.pins]
            excess_bytes -= sum(freed)
            excess_runs -= len(freed)
        for run in evicted:
            del self._list_of[run]
        return evicted
