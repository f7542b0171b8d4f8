"""Ring memory in which each run has its own slot: segments are lists of runs.

Runs are added to the newest list until it is full. When memory is needed, the oldest
list is evicted as a whole. The memory of an evicted run is freed with its last reader.

Source: Apache Pulsar PIP-174, where entries are retained and not copied. Different
here: the bytes of a run count until its last reader unmaps it, and the size of an
evicted list is subtracted with the list.
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
class _RunList(Generic[V]):
    """A segment: a list of runs and their total size."""

    size_bytes: int = 0
    runs: dict[CachedRun[V], None] = field(default_factory=dict)


class ListedSegments(Generic[V]):
    """Lists of runs that are evicted as a whole, the oldest first.

    Args:
        settings: The limits.
        accounting: The memory that is held.

    """

    numbers: Collection[int] = ()  # the only memory is that of the runs

    def __init__(self, settings: Settings, accounting: MemoryAccounting) -> None:
        self._accounting = accounting
        self._lists: OrderedDict[_RunList[V], None] = OrderedDict()  # oldest first
        self._list_of: dict[CachedRun[V], _RunList[V]] = {}
        self._settings = settings

    def __repr__(self) -> str:
        return f"<{len(self._lists)} lists of {len(self._list_of)} runs together>"

    @property
    def held_bytes(self) -> int:
        """Bytes that count towards the limit: kept, reserved and lent."""
        return self._accounting.held.bytes

    def runs(self) -> Iterator[CachedRun[V]]:
        """Yield the runs that look-ups find, the next to be evicted first."""
        for listed in self._lists:
            yield from listed.runs

    def reserve(self, size_bytes: int) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Reserve memory for a run; return its slot, if any, and the evicted runs."""
        settings = self._settings
        size_bytes = settings.rounded(size_bytes)
        limits = settings.max_bytes, settings.max_runs
        if size_bytes > self._segment_bytes or not self._accounting.could_fit(
            size_bytes, *limits
        ):
            return None, []
        return Slot(size_bytes), self._evict_lists(size_bytes, 1)

    def has_spare(self, size_bytes: int) -> bool:
        """Return whether a run fits without evicting any run."""
        held, settings = self._accounting.held, self._settings
        most_bytes = min(settings.max_bytes - held.bytes, self._segment_bytes)
        return settings.rounded(size_bytes) <= most_bytes and (
            held.runs < settings.max_runs
        )

    def unreserve(self, slot: Slot) -> None:
        """Return a slot that was not written."""

    def keep(self, run: CachedRun[V]) -> None:
        """Add a run that was written to its slot."""
        newest = next(reversed(self._lists), None)
        if newest is None or newest.size_bytes + run.size_bytes > self._segment_bytes:
            newest = _RunList()
            self._lists[newest] = None
        newest.size_bytes += run.size_bytes
        newest.runs[run] = None
        self._list_of[run] = newest

    def drop(self, run: CachedRun[V]) -> None:
        """Forget a run, and its list too if that is empty then."""
        listed = self._list_of.pop(run)
        listed.size_bytes -= run.size_bytes
        del listed.runs[run]
        if not listed.runs:
            del self._lists[listed]

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps a run."""

    def unpin(self, run: CachedRun[V]) -> None:
        """Note that a reader unmapped a run."""

    def configure(self, settings: Settings) -> list[CachedRun[V]]:
        """Change the limits; return the runs that no longer fit."""
        self._settings = settings
        return self.shrink()

    def shrink(self) -> list[CachedRun[V]]:
        """Evict lists above the limits, as far as possible; return their runs."""
        return self._evict_lists(0, 0)

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

    def _evict_lists(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Evict lists until this many more bytes and runs fit; return their runs."""
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
