"""Bundles: memory that small runs share, which counts until the last is gone."""

from __future__ import annotations

from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sparkcache.cache import CachedRun, Policy, Residency, RunCache, Settings, Ttl
from sparkcache.model import RunKey, Slot
from tests.effort import tries
from tests.unit.cache.cache_cases import HOUR, KILO, key, put

FOREVER = Ttl(inf, None, inf)


def put_bundle(
    cache: RunCache[str], keys: list[RunKey], sizes: list[int], expected_reads: int = 0
) -> list[CachedRun[str] | None]:
    slot, _ = cache.reserve(sum(sizes), 0)
    assert slot is not None
    bundle = cache.bundle(slot, sizes)
    inserted, offset = [], 0
    for where, size_bytes in zip(keys, sizes, strict=True):
        run = cache.insert(
            where,
            "file",
            slot=Slot(size_bytes, None, offset),
            expected_reads=expected_reads,
            now_s=0,
            bundle=bundle,
        )
        inserted.append(run)
        offset += size_bytes
    cache.accounting.free_if_unused(bundle)
    cache.check()
    return inserted


def test_a_bundle_counts_until_its_last_run_is_gone() -> None:
    cache: RunCache[str] = RunCache(KILO)
    first, second = put_bundle(cache, [key(0), key(1)], [300, 100])
    assert first
    assert second
    assert (cache.held_bytes, cache.accounting.files) == (400, 1)
    cache.remove(key(0))
    assert first.residency is Residency.GONE
    assert cache.peek(key(0), 0) is None
    assert (cache.held_bytes, cache.kept_bytes) == (400, 100)
    cache.pin(second)
    cache.remove(key(1))
    assert cache.held_bytes == 400
    cache.check()
    cache.unpin(second)
    assert (cache.held_bytes, cache.accounting.files) == (0, 0)
    cache.check()


def test_the_rest_of_a_bundle_is_evicted_with_a_run_of_it() -> None:
    cache: RunCache[str] = RunCache(KILO)
    put_bundle(cache, [key(0), key(1), key(2)], [100, 100, 100])
    put(cache, key(3), 600)
    slot, evicted = cache.reserve(150, 0)
    assert slot == Slot(150)
    assert [run.key for run in evicted] == [key(0), key(1), key(2)]
    cache.check()


def test_a_run_is_refused_if_a_reader_maps_a_bundle() -> None:
    cache: RunCache[str] = RunCache(KILO)
    runs = put_bundle(cache, [key(0), key(1)], [800, 100])
    assert runs[1]
    cache.pin(runs[1])
    slot, evicted = cache.reserve(500, 0)
    assert slot is None
    assert [run.key for run in evicted] == [key(0), key(1)]
    assert cache.held_bytes == 900
    cache.check()
    cache.unpin(runs[1])
    assert cache.held_bytes == 0


def test_a_part_whose_run_is_kept_already_counts_with_its_bundle() -> None:
    cache: RunCache[str] = RunCache(KILO)
    put(cache, key(0), 50)
    assert put_bundle(cache, [key(0), key(1)], [50, 60])[0] is None
    assert (cache.held_bytes, cache.kept_bytes) == (160, 110)
    cache.remove(key(1))
    assert cache.held_bytes == 50
    cache.check()


def test_a_bundle_of_which_all_runs_are_kept_already_is_freed() -> None:
    cache: RunCache[str] = RunCache(KILO)
    put(cache, key(0), 50)
    assert put_bundle(cache, [key(0)], [50]) == [None]
    assert (cache.held_bytes, cache.accounting.files) == (50, 1)


def test_the_limit_of_runs_is_one_of_files() -> None:
    cache: RunCache[str] = RunCache(Settings(max_bytes=1000, max_runs=2, ttl=HOUR))
    put_bundle(cache, [key(index) for index in range(5)], [10] * 5)
    put(cache, key(7), 10)
    assert len(cache) == 6
    slot, evicted = cache.reserve(10, 0)
    assert slot is not None
    assert len(evicted) == 5
    cache.check()


def test_sizes_that_do_not_fill_a_bundle_are_an_error() -> None:
    cache: RunCache[str] = RunCache(KILO)
    slot, _ = cache.reserve(100, 0)
    assert slot is not None
    with pytest.raises(ValueError, match="runs of 90 in a bundle of 100 bytes"):
        cache.bundle(slot, [40, 50])
    cache.check()


class BundleMachine(RuleBasedStateMachine):
    """Files are counted here by what is in them: each until nobody needs any of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.files: list[list[CachedRun[str]]] = []
        self.sizes: list[int] = []
        self.pinned: list[CachedRun[str]] = []

    @initialize(
        policy=st.sampled_from(Policy),
        max_runs=st.sampled_from((2, 5, 100)),
        ttl=st.sampled_from((FOREVER, Ttl(4, 2, 6))),
    )
    def begin(self, policy: Policy, max_runs: int, ttl: Ttl) -> None:
        self.settings = Settings(
            max_bytes=100, max_runs=max_runs, ttl=ttl, policy=policy
        )
        self.cache: RunCache[str] = RunCache(self.settings)

    @rule(
        entries=st.lists(
            st.tuples(st.integers(0, 12), st.sampled_from((1, 5, 20, 40))),
            min_size=1,
            max_size=5,
            unique_by=lambda entry: entry[0],
        ),
        expected_reads=st.integers(0, 1),
        is_bundle=st.booleans(),
    )
    def load(
        self, entries: list[tuple[int, int]], expected_reads: int, is_bundle: bool
    ) -> None:
        entries = entries if is_bundle else entries[:1]
        sizes = [size for _, size in entries]
        slot, _ = self.cache.reserve(sum(sizes), self.now_s)
        if slot is None:
            return
        bundle = self.cache.bundle(slot, sizes) if is_bundle else None
        inserted = [
            self.cache.insert(
                key(index),
                "",
                slot=Slot(size_bytes),
                expected_reads=expected_reads,
                now_s=self.now_s,
                bundle=bundle,
            )
            for index, size_bytes in entries
        ]
        if bundle is not None:
            self.cache.accounting.free_if_unused(bundle)
        self.files.append([run for run in inserted if run is not None])
        self.sizes.append(sum(sizes))

    @precondition(lambda self: len(self.cache) > 0)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.cache.runs()))
        self.cache.pin(run)
        self.pinned.append(run)

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        run = self.pinned.pop(data.draw(st.integers(0, len(self.pinned) - 1)))
        self.cache.unpin(run)

    @rule(index=st.integers(0, 12))
    def read(self, index: int) -> None:
        self.cache.get(key(index), self.now_s)
        self.cache.mark_read(key(index), self.now_s)

    @rule(index=st.integers(0, 12))
    def remove(self, index: int) -> None:
        self.cache.remove(key(index))

    @rule(seconds=st.integers(0, 3))
    def expire(self, seconds: int) -> None:
        self.now_s += seconds
        self.cache.expire(self.now_s)

    @invariant()
    def files_count_until_nobody_needs_them(self) -> None:
        self.cache.check()
        used = [
            size_bytes
            for runs, size_bytes in zip(self.files, self.sizes, strict=True)
            if any(run.residency is not Residency.GONE for run in runs)
        ]
        assert self.cache.held_bytes == sum(used) <= self.settings.max_bytes
        assert self.cache.accounting.files == len(used) <= self.settings.max_runs


TestBundles = BundleMachine.TestCase
TestBundles.settings = hypothesis_settings(
    max_examples=tries(200), stateful_step_count=30, deadline=None
)
