"""The interface of a cache engine, which both engines implement.

A method that returns runs means "these are no longer kept, free them". Time is an
argument and never goes backwards. `tests/unit/cache/test_engines.py` is the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparkcache.cache.cached_run import Bundle, CachedRun
    from sparkcache.cache.counters import Counters
    from sparkcache.cache.memory_accounting import MemoryAccounting
    from sparkcache.cache.settings import Settings
    from sparkcache.model import RunKey, Slot

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
        """Numbers of the segments whose memory is in use; empty without segments."""
        return ()

    @property
    def held_bytes(self) -> int:
        """Bytes that count towards the limit."""

    @property
    def is_idle(self) -> bool:
        """Whether no run is kept, reserved, or mapped by a reader."""
        return not self.accounting.held.runs

    @property
    def kept_bytes(self) -> int:
        """Bytes of the runs that look-ups can find."""
        return self.accounting.kept.bytes

    def get(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run to read it, which counts as an access."""

    def peek(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run without any effect."""

    def keys_of(self, topics: Collection[str]) -> list[RunKey]:
        """Return the keys of all runs of some topics, overdue runs included."""

    def runs(self) -> list[CachedRun[V]]:
        """List the kept runs, the next to be evicted first."""

    def readers_moved(self, topic: str) -> None:
        """Note that the forecast of a topic has changed."""

    def reserve(
        self, size_bytes: int, now_s: float, key: RunKey | None = None
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Reserve memory for a run; return its slot, if any, and the evicted runs."""

    def would_admit(self, key: RunKey, size_bytes: int) -> bool:
        """Return whether memory for a run would be reserved now, without any effect."""

    def has_spare(self, size_bytes: int) -> bool:
        """Return whether a run fits without evicting any run."""

    def unreserve(self, slot: Slot) -> None:
        """Return a reservation that is not used."""

    def bundle(self, slot: Slot, sizes: Sequence[int]) -> Bundle:
        """Divide reserved memory among runs, each of which is then inserted."""

    def insert(
        self,
        key: RunKey,
        value: V,
        *,
        slot: Slot,
        expected_reads: int,
        now_s: float,
        ahead: bool = False,
        bundle: Bundle | None = None,
    ) -> CachedRun[V] | None:
        """Keep a run in its reserved slot; return None if the run is kept already."""

    def abandon(self, run: CachedRun[V]) -> None:
        """Note that the reader that a kept run was prefetched for is not coming."""

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps the run."""

    def unpin(self, run: CachedRun[V]) -> bool:
        """Note that a reader unmapped the run; return whether its bytes are freed."""

    def mark_read(self, key: RunKey, now_s: float) -> int | None:
        """Note that a planned read is done; return how many remain, if held."""

    def set_expected(self, key: RunKey, expected_reads: int, now_s: float) -> bool:
        """Set how many reads are to come; return whether the run is held."""

    def expire(
        self, now_s: float, most_runs: float = ..., most_bytes: float = ...
    ) -> list[CachedRun[V]]:
        """Remove overdue runs, at most this many, and runs above a lowered limit."""

    def expire_run(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Remove one overdue run now; return None if it is missing or not overdue."""

    def next_deadline_s(self) -> float | None:
        """Return when `expire` will have work; None if never."""

    def has_overdue(self, now_s: float) -> bool:
        """Return whether `expire` has overdue work."""

    def remove(self, key: RunKey) -> CachedRun[V] | None:
        """Remove a run even if reads are expected; return None if it is missing."""

    def invalidate_topic(self, topic: str) -> list[CachedRun[V]]:
        """Remove all runs of all ledgers of a topic."""

    def clear(self) -> list[CachedRun[V]]:
        """Remove all runs. Reservations stay, since their loads are running."""

    def configure(self, settings: Settings, now_s: float) -> list[CachedRun[V]]:
        """Change the limits and the policy; return the runs that no longer fit."""

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
