"""Runs, keys and caches to test with, and the slow cache that says what is right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from sparkcache.cache import CachedRun, Engine, RunCache, Settings, Ttl
from sparkcache.model import Ledger, ObjectId, Run, RunKey

ROCKETMQ = Ttl(create_s=180, after_read_s=10, expected_s=180)
PULSAR = Ttl(create_s=1, after_read_s=None, expected_s=1)
ROOMY = Settings(max_bytes=1_000_000, max_runs=1_000, ttl=PULSAR)
HOUR = Ttl(3600, None, 3600)
KILO = Settings(max_bytes=1000, max_runs=100, ttl=HOUR)


def ledger(number: int = 0, topic: str = "a") -> Ledger:
    return Ledger("test", topic, number, ObjectId(f"mem://{topic}/{number}", 1, "v1"))


def key(index: int, number: int = 0, topic: str = "a") -> RunKey:
    """The run of entries 10 * index to 10 * index + 9."""
    return RunKey(ledger(number, topic), Run(10 * index, 10 * index + 9))


def put(
    cache: Engine[str],
    where: RunKey,
    size_bytes: int = 1,
    *,
    expected_reads: int = 0,
    now_s: float = 0.0,
) -> CachedRun[str] | None:
    slot, _ = cache.reserve(size_bytes, now_s)
    assert slot is not None
    return cache.insert(
        where,
        str(where),
        slot=slot,
        expected_reads=expected_reads,
        now_s=now_s,
    )


def cache_of(*sizes: int, **settings: Any) -> RunCache[str]:
    """Runs 0, 1, 2... of these sizes, all inserted at 0 s."""
    cache: RunCache[str] = RunCache(replace(ROOMY, **settings))
    for index, size_bytes in enumerate(sizes):
        put(cache, key(index), size_bytes)
    return cache


def keys(runs: list[CachedRun[str]]) -> list[RunKey]:
    return [run.key for run in runs]


@dataclass(eq=False)
class SlowRun:
    key: RunKey
    size_bytes: int
    expected_reads: int = 0
    pins: int = 0
    requeues: int = 0
    accessed: bool = False
    was_read: bool = False
    since_s: float = 0.0
    inserted_s: float = 0.0
    state: str = "unread"
    stamp: int = 0
    life: int = 0


class SlowCache:
    """The rules of RunCache, one obvious list each, and everything by searching it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kept: list[SlowRun] = []
        self.lent: list[SlowRun] = []
        self.reserved: list[int] = []
        self._stamps = 0

    @property
    def kept_bytes(self) -> int:
        return sum(run.size_bytes for run in self.kept)

    @property
    def held_bytes(self) -> int:
        return (
            self.kept_bytes + sum(self.reserved) + sum(r.size_bytes for r in self.lent)
        )

    @property
    def held_runs(self) -> int:
        return len(self.kept) + len(self.reserved) + len(self.lent)

    def find(self, where: RunKey, now_s: float) -> SlowRun | None:
        for run in self.kept:
            if run.key == where and not self.is_dead(run, now_s):
                return run
        return None

    def is_dead(self, run: SlowRun, now_s: float) -> bool:
        return now_s >= self.end_of_life_s(run) or (
            self.is_over(run, now_s) and not self.spares(run)
        )

    def end_of_life_s(self, run: SlowRun) -> float:
        return run.inserted_s + self.settings.ttl.max_life_s

    def deadline_s(self, run: SlowRun) -> float:
        return min(self.end_of_time_s(run), self.end_of_life_s(run))

    def end_of_time_s(self, run: SlowRun) -> float:
        ttl = self.settings.ttl
        after_read_s = ttl.create_s if ttl.after_read_s is None else ttl.after_read_s
        return (
            run.since_s
            + {
                "unread": ttl.create_s,
                "read": after_read_s,
                "expected": ttl.expected_s,
            }[run.state]
        )

    def is_over(self, run: SlowRun, now_s: float) -> bool:
        return now_s - self.end_of_time_s(run) >= 0

    def spares(self, run: SlowRun) -> bool:
        settings = self.settings
        return (settings.extend_recently_accessed and run.accessed) or (
            run.expected_reads > 0 and run.requeues < settings.max_requeues
        )

    def next_stamp(self) -> int:
        self._stamps += 1
        return self._stamps

    def start(self, run: SlowRun, now_s: float) -> None:
        run.stamp = self.next_stamp()
        run.since_s = now_s
        run.state = (
            "expected" if run.expected_reads else "read" if run.was_read else "unread"
        )

    def read(self, run: SlowRun, now_s: float) -> None:
        if self.settings.ttl.after_read_s is not None:
            run.was_read = True
            self.start(run, now_s)

    def get(self, where: RunKey, now_s: float) -> SlowRun | None:
        run = self.find(where, now_s)
        if run:
            run.accessed = True
            self.read(run, now_s)
        return run

    def mark_read(self, where: RunKey, now_s: float) -> int | None:
        run = self.find(where, now_s)
        if run is None:
            return None
        run.expected_reads = max(0, run.expected_reads - 1)
        self.read(run, now_s)
        return run.expected_reads

    def set_expected(self, where: RunKey, reads: int, now_s: float) -> bool:
        run = self.find(where, now_s)
        if run is None:
            return False
        before, run.expected_reads = run.expected_reads, reads
        if (before > 0) != (reads > 0):
            run.requeues = 0
            self.start(run, now_s)
        return True

    def reserve(self, size_bytes: int, now_s: float) -> tuple[bool, list[SlowRun]]:
        settings = self.settings
        free = [run for run in self.kept if not run.pins]
        fixed_bytes = self.held_bytes - sum(run.size_bytes for run in free)
        if fixed_bytes + size_bytes > settings.max_bytes:
            return False, []
        if self.held_runs - len(free) + 1 > settings.max_runs:
            return False, []
        then_bytes = self.held_bytes + size_bytes
        goal_bytes = 0
        if then_bytes > int(settings.trigger * settings.max_bytes):
            goal_bytes = then_bytes - int(settings.watermark * settings.max_bytes)
        goal_runs = self.held_runs + 1 - settings.max_runs
        removed = self.shrink(goal_bytes, goal_runs, now_s)
        self.reserved.append(size_bytes)
        return True, removed

    def insert(
        self, where: RunKey, size_bytes: int, expected_reads: int, now_s: float
    ) -> SlowRun | None:
        self.reserved.remove(size_bytes)
        for run in self.kept:
            if run.key == where:
                run.requeues = 0
                run.accessed = run.was_read = False
                run.expected_reads = expected_reads
                self.kept.remove(run)
                self.kept.append(run)
                run.inserted_s = now_s
                run.life = self.next_stamp()
                self.start(run, now_s)
                return None
        run = SlowRun(where, size_bytes, expected_reads, inserted_s=now_s)
        run.life = self.next_stamp()
        self.kept.append(run)
        self.start(run, now_s)
        return run

    def unpin(self, run: SlowRun) -> bool:
        run.pins -= 1
        if run.pins == 0 and run in self.lent:
            self.lent.remove(run)
            return True
        return False

    def drop(self, run: SlowRun) -> None:
        self.kept.remove(run)
        if run.pins:
            self.lent.append(run)

    def requeue(self, run: SlowRun, now_s: float) -> None:
        run.requeues += 1
        run.accessed = False
        self.kept.remove(run)
        self.kept.append(run)
        self.start(run, now_s)

    def shrink(self, size_bytes: int, runs: int, now_s: float) -> list[SlowRun]:
        removed: list[SlowRun] = []
        while (
            sum(run.size_bytes for run in removed) < size_bytes or len(removed) < runs
        ):
            run = next((run for run in self.kept if not run.pins), None)
            if run is None:
                break
            if self.spares(run):
                self.requeue(run, now_s)
            else:
                self.drop(run)
                removed.append(run)
        return removed

    def shrink_to_limit(self, now_s: float) -> list[SlowRun]:
        settings = self.settings
        goal_bytes = 0
        if self.held_bytes > settings.max_bytes:
            goal_bytes = self.held_bytes - int(settings.watermark * settings.max_bytes)
        return self.shrink(goal_bytes, self.held_runs - settings.max_runs, now_s)

    def expire(
        self, now_s: float, most_runs: float = inf, most_bytes: float = inf
    ) -> list[SlowRun]:
        removed: list[SlowRun] = []
        while (run := self.next_over(now_s)) and most_runs > 0 and most_bytes > 0:
            most_runs -= 1
            if self.is_dead(run, now_s):
                self.drop(run)
                removed.append(run)
                most_bytes -= run.size_bytes
            else:
                self.requeue(run, now_s)
        return removed + ([] if run else self.shrink_to_limit(now_s))

    def next_over(self, now_s: float) -> SlowRun | None:
        ended = [run for run in self.kept if now_s >= self.end_of_life_s(run)]
        if ended:
            return min(ended, key=lambda run: run.life)
        over = [run for run in self.kept if self.is_over(run, now_s)]
        order = ("expected", "read", "unread")
        return min(
            over, key=lambda run: (order.index(run.state), run.stamp), default=None
        )

    def invalidate(self, runs: list[SlowRun]) -> list[SlowRun]:
        for run in runs:
            self.drop(run)
        return runs
