"""Distributions: how long hits take, and how long runs are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.histogram import Values
from sparkcache.metrics import Metrics

if TYPE_CHECKING:
    from sparkcache.cache import CachedRun
    from sparkcache.histogram import Histogram

_NOTHING = Metrics()


class Times:
    """Times of hits and evictions, by the names of `Metrics`."""

    def __init__(self) -> None:
        self._values: dict[str, Values] = {}

    def __repr__(self) -> str:
        return f"Times({self._values!r})"

    def served(self, asked_s: float, served_s: float, runs: int) -> None:
        """Record that held runs were served together."""
        for _ in range(runs):
            self._add("hit_s", (served_s - asked_s) / runs)

    def evicted(self, run: CachedRun[int], now_s: float) -> None:
        """Record that a run was evicted."""
        self._add("evicted_age_s", now_s - run.inserted_s)
        self._add("evicted_idle_s", now_s - max(run.inserted_s, run.looked_up_s))
        self._add("evicted_reads", run.lookups)

    def histograms(self) -> dict[str, Histogram]:
        """Return the histograms that have values."""
        return {name: values.histogram() for name, values in self._values.items()}

    def _add(self, name: str, value: float) -> None:
        values = self._values.get(name)
        if values is None:
            bounds = getattr(_NOTHING, name).bounds
            values = self._values[name] = Values(bounds)
        values.add(value)
