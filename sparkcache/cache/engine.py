"""What an engine does: the seam that both have, and that everything else goes by.

Whatever returns runs says "these are no longer kept, free them". Time is an argument
and never goes backwards. `tests/unit/cache/test_engines.py` is the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.counters import Counters
    from sparkcache.cache.memory_accounting import MemoryAccounting
    from sparkcache.cache.settings import Settings
    from sparkcache.model import Ledger, RunKey, Slot

V = TypeVar("V")


class Engine(Protocol[V]):
    """Runs by key, within a limit of bytes. Engines derive from it."""

    counters: Counters
    accounting: MemoryAccounting

    def __len__(self) -> int: ...

    @property
    def settings(self) -> Settings:
        """The limits and the policy in force."""

    @property
    def segments(self) -> Collection[int]:
        """Numbers of the segments whose memory is in use; none where there are none."""
        return ()

    @property
    def held_bytes(self) -> int:
        """What counts towards the limit."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is kept, or going to be, or mapped by a reader."""
        return not self.accounting.held.runs

    @property
    def kept_bytes(self) -> int:
        """What look-ups can find."""
        return self.accounting.kept.bytes

    def get(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run to read it, which counts as an access."""

    def peek(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run without any effect."""

    def keys_of(self, topics: Collection[str]) -> list[RunKey]:
        """The runs here of some topics, overdue ones too; no effect."""

    def runs(self) -> list[CachedRun[V]]:
        """List the runs kept, the next to go first."""

    def readers_moved(self, topic: str) -> None:
        """Note that what is foreseen of a topic has changed."""

    def reserve(
        self, size_bytes: int, now_s: float, key: RunKey | None = None
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Make room for a run about to be created; return it, and what was evicted."""

    def has_spare(self, size_bytes: int) -> bool:
        """Whether a run fits and nothing has to go for it."""

    def unreserve(self, slot: Slot) -> None:
        """Give back a reservation that comes to nothing."""

    def insert(
        self,
        key: RunKey,
        value: V,
        *,
        slot: Slot,
        expected_reads: int,
        now_s: float,
        ahead: bool = False,
    ) -> CachedRun[V] | None:
        """Keep a run in the room made for it; None if it is here already."""

    def abandon(self, run: CachedRun[V]) -> None:
        """Note that nobody comes any more to a kept run that was loaded ahead."""

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps the run."""

    def unpin(self, run: CachedRun[V]) -> bool:
        """Note that a reader let go; returns whether the run's bytes went with it."""

    def mark_read(self, key: RunKey, now_s: float) -> int | None:
        """Note that a planned read is done; returns how many are left, if held."""

    def set_expected(self, key: RunKey, expected_reads: int, now_s: float) -> bool:
        """Say anew how many reads are to come; returns whether the run is held."""

    def expire(
        self, now_s: float, most_runs: float = ..., most_bytes: float = ...
    ) -> list[CachedRun[V]]:
        """Remove what is overdue, so much at most, and what a lowered limit left."""

    def expire_run(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Remove a run that is overdue before its turn."""

    def next_deadline_s(self) -> float | None:
        """When `expire` will have work; None if never."""

    def is_behind(self, now_s: float) -> bool:
        """Whether `expire` has work that is overdue."""

    def remove(self, key: RunKey) -> CachedRun[V] | None:
        """Remove a run, whatever is expected of it; None if it is not here."""

    def invalidate_ledger(self, ledger: Ledger) -> list[CachedRun[V]]:
        """Remove all runs of a ledger."""

    def invalidate_topic(self, topic: str) -> list[CachedRun[V]]:
        """Remove all runs of all ledgers of a topic."""

    def clear(self) -> list[CachedRun[V]]:
        """Remove all runs. Reservations stay: their loads are under way."""

    def configure(self, settings: Settings, now_s: float) -> list[CachedRun[V]]:
        """Change the limits and the policy; returns what no longer fits."""

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
