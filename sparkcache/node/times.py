"""Durations: how long hits take, and how long runs are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.histogram import COUNTS, TIMES_S, Values

if TYPE_CHECKING:
    from sparkcache.cache import CachedRun
    from sparkcache.histogram import Histogram


class Times:
    """Times of hits and evictions."""

    def __init__(self) -> None:
        self._hit_s = Values(TIMES_S)
        self._age_s = Values(TIMES_S)
        self._idle_s = Values(TIMES_S)
        self._reads = Values(COUNTS)

    def __repr__(self) -> str:
        return f"Times({self._hit_s!r})"

    def served(self, asked_s: float, served_s: float, runs: int) -> None:
        """Record that held runs were served together."""
        for _ in range(runs):
            self._hit_s.see((served_s - asked_s) / runs)

    def evicted(self, run: CachedRun[int], now_s: float) -> None:
        """Record that a run was evicted."""
        self._age_s.see(now_s - run.inserted_s)
        self._idle_s.see(now_s - max(run.inserted_s, run.looked_up_s))
        self._reads.see(run.lookups)

    def histograms(self) -> dict[str, Histogram]:
        """Return the histograms, by the names of `Metrics`."""
        return {
            "hit_s": self._hit_s.histogram(),
            "evicted_age_s": self._age_s.histogram(),
            "evicted_idle_s": self._idle_s.histogram(),
            "evicted_reads": self._reads.histogram(),
        }
