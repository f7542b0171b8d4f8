"""What the pure core costs, whatever the number of topics and of consumers.

    python tests/benchmarks/core.py [--json] [--save]

By number of topics, for the same number of runs, in nanoseconds each:

    ns_insert   reserve and insert, where there is room
    ns_hit      get, of runs at random: few of them are in the processor's caches
    ns_evict    a run, by passes that free 2 % of all each

`hit_growth` and `evict_growth` are those with 100000 topics / those with 10.

`ns_evict_by_consumers` is what a decision of next-read costs, by number of planned
consumers: 4 and 64 of one topic, 1000 of 100 topics. Each consumer has begun somewhere
and reads on, one of them chosen at random after the other, so that they overtake each
other. When one comes to a run that is not held, it takes the run, memory is reserved
for it at the cost of others, and it is inserted: these three are timed. Every 32 runs a
consumer goes on to its next partition, and at the end of the topic another one begins.
`consumers_growth` is the worst of them / that with 4 consumers.

`over_cachetools` is the speed of ours / that of cachetools.TLRUCache for the same calls
with the same keys: a put, four gets, one in ten of which misses, and an expire every 64
puts; once bound by size, once by time. Ours does more for it: it counts what is
reserved and lent, and finds runs by ledger and position.

`ns_node_hit` is what a node does for a hit without sockets: see `node_hit.py`.

Rounds alternate; medians after a warm-up. Processor time. As in timeit, the garbage
collector is off while a measurement runs.
"""

from __future__ import annotations

import gc
import random
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import cachetools

from sparkcache.cache import PlannedCache, Policy, RunCache, Settings, Ttl
from sparkcache.demand import (
    Consumer,
    ExtentOffset,
    PartitionRead,
    Plan,
    ReaderIdentity,
)
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey, Slot
from tests.benchmarks import record
from tests.benchmarks.node_hit import ns_node_hit

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
RUNS = 200_000
TOPICS = (10, 1_000, 100_000)
RUNS_PER_LEDGER = 500
RUN_BYTES = 1 << 20
CONSUMERS = ((4, 1, 4_000), (64, 1, 4_000), (1_000, 100, 400))  # of topics, of runs
DECISIONS = 3_000
PARTITION_RUNS = 32
ENDLESS = Ttl(create_s=1e9, after_read_s=None, expected_s=1e9)
DUAL_TTL = Ttl(create_s=180.0, after_read_s=10.0, expected_s=600.0)


def measure() -> dict[str, Any]:
    """Measure ours by number of topics and of consumers, and beside cachetools."""
    return (
        by_topics()
        | by_consumers()
        | {"over_cachetools": over_cachetools(), "ns_node_hit": ns_node_hit()}
    )


def by_topics() -> dict[str, Any]:
    """Time insertion, hit and eviction for each number of topics."""
    keys = {topics: keys_of(topics) for topics in TOPICS}
    times: dict[str, dict[str, list[float]]] = {
        name: {str(topics): [] for topics in TOPICS}
        for name in ("ns_insert", "ns_hit", "ns_evict")
    }
    for number in range(ROUNDS + 1):
        for topics in TOPICS:
            for name, value in one_round(keys[topics]).items():
                if number:  # the first warms up
                    times[name][str(topics)].append(value)
    result: dict[str, Any] = {
        name: {topics: round(median(values)) for topics, values in of_name.items()}
        for name, of_name in times.items()
    }
    for name in ("hit", "evict"):
        first, *_, last = result[f"ns_{name}"].values()
        result[f"{name}_growth"] = round(last / first, 3)
    return result


def by_consumers() -> dict[str, Any]:
    """Time decisions of next-read for each number of consumers."""
    times: dict[str, list[float]] = {str(number): [] for number, *_ in CONSUMERS}
    for number in range(ROUNDS + 1):
        for consumers, topics, runs in CONSUMERS:
            value_s = Fleet(consumers, topics, runs).decide(DECISIONS)
            if number:
                times[str(consumers)].append(value_s / DECISIONS * 1e9)
    costs = {number: round(median(values)) for number, values in times.items()}
    first, *others = costs.values()
    growth = round(max(others) / first, 3)
    return {"ns_evict_by_consumers": costs, "consumers_growth": growth}


class Fleet:
    """Planned consumers that read side by side through a cache that is too small.

    Args:
        consumers: How many read at a time.
        topics: How many topics they read.
        runs: The runs of each topic, a quarter of which fit.

    """

    def __init__(self, consumers: int, topics: int, runs: int) -> None:
        self._rng = random.Random(consumers)
        self._runs = [
            [RunKey(ledger_of(topic, 0), Run(n, n)) for n in range(runs)]
            for topic in range(topics)
        ]
        self._at = [self._rng.randrange(runs) for _ in range(consumers)]
        self._reads: dict[int, PartitionRead] = {}
        held = topics * runs // 4
        self._cache: PlannedCache[int] = PlannedCache(
            Settings(held * RUN_BYTES, held, ENDLESS, Policy.NEXT_READ)
        )
        names = [keys[0].ledger.topic for keys in self._runs]
        planned = tuple(Consumer(names[index % topics]) for index in range(consumers))
        self._cache.begin([Plan("plan", planned * 100)], 0.0)
        self._stages = list(range(consumers))
        for index in range(consumers):
            self._open(index)

    def decide(self, decisions: int) -> float:
        """Have memory decided about so often; return the seconds for these."""
        while not self._cache.runs.counters.evicted_by_size:
            self._step()
        gc.collect()
        gc.disable()
        try:
            for _ in range(10 * len(self._at)):
                self._step()  # so that each has a pace
            waits: list[float] = []
            while len(waits) < decisions:
                if took_s := self._step():
                    waits.append(took_s)
            return sum(waits)
        finally:
            gc.enable()

    def _step(self) -> float:
        """Let a consumer read a run; return the seconds if it was not held, else 0."""
        index = self._rng.randrange(len(self._at))
        at, cache = self._at[index], self._cache
        key = self._runs[index % len(self._runs)][at]
        start_s = time.process_time()
        held = cache.take(self._reads[index], key, 0.0)
        if held is None:
            slot, _ = cache.reserve(key, RUN_BYTES, 0.0)
            if slot is not None:
                cache.insert(key, 0, slot=slot, now_s=0.0)
        took_s = time.process_time() - start_s
        cache.finish(self._reads[index], at % PARTITION_RUNS, key, 0.0)
        self._at[index] = (at + 1) % len(self._runs[0])
        if not self._at[index]:
            self._stages[index] += len(self._at)
        if not self._at[index] % PARTITION_RUNS:
            cache.close(self._reads.pop(index))
            self._open(index)
        return took_s if held is None else 0.0

    def _open(self, index: int) -> None:
        """Let a consumer begin the partition that it is in."""
        part = self._at[index] // PARTITION_RUNS
        first = part * PARTITION_RUNS
        stop = min(first + PARTITION_RUNS, len(self._runs[0]))
        topic = self._runs[index % len(self._runs)][0].ledger.topic
        self._reads[index] = self._cache.open(
            ReaderIdentity(
                ReadToken(self._stages[index], part, part),
                f"scan {index}",
                Consumer(topic),
                float(len(self._runs[0]) * RUN_BYTES),
            ),
            ("plan",),
            [
                ExtentOffset(
                    0,
                    first,
                    stop - 1,
                    float(first * RUN_BYTES),
                    (stop - first) * RUN_BYTES,
                )
            ],
            Position(0, first),
            Position(0, stop),
        )


def keys_of(topics: int) -> list[RunKey]:
    """RUNS keys, the topics taking turns."""
    keys = []
    ledgers: dict[int, Ledger] = {}
    for index in range(RUNS):
        topic, position = index % topics, index // topics
        number, run = divmod(position, RUNS_PER_LEDGER)
        if run == 0:
            ledgers[topic] = ledger_of(topic, number)
        keys.append(RunKey(ledgers[topic], Run(run * 100, run * 100 + 99)))
    return keys


def ledger_of(topic: int, number: int) -> Ledger:
    """A ledger as a connector would name it."""
    uri = f"s3://offload/{topic:08x}-ledger-{number}"
    name = f"persistent://shop/eu/orders-{topic}"
    return Ledger("pulsar", name, number, ObjectId(uri, 1 << 30, f"{topic:032x}"))


def one_round(keys: list[RunKey]) -> dict[str, float]:
    """Fill a cache, read it, empty half of it; nanoseconds per run."""
    cache: RunCache[int] = RunCache(Settings(2 * RUNS * RUN_BYTES, 2 * RUNS, DUAL_TTL))
    some = random.Random(1).sample(keys, 50_000)
    half = RUNS // 2

    def insert() -> None:
        for key in keys:
            cache.reserve(RUN_BYTES, 0.0)
            cache.insert(key, 0, slot=Slot(RUN_BYTES), expected_reads=0, now_s=0.0)

    def hit() -> None:
        for key in some:
            cache.get(key, 1.0)

    def evict() -> None:
        for _ in range(25):
            cache.evict(half // 25 * RUN_BYTES, 2.0)

    times = {
        "ns_insert": seconds(insert) / RUNS * 1e9,
        "ns_hit": seconds(hit) / len(some) * 1e9,
        "ns_evict": seconds(evict) / half * 1e9,
    }
    assert len(cache) == RUNS - half
    return times


def over_cachetools() -> float:
    """The same calls on both, in turns."""
    keys = keys_of(1_000)[:30_000]
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(ROUNDS + 1):
        pair = (
            sum(our_mix(keys, held, ttl_s) for held, ttl_s in MIXES),
            sum(their_mix(keys, held, ttl_s) for held, ttl_s in MIXES),
        )
        if number:
            ours.append(pair[0])
            theirs.append(pair[1])
    return round(median(theirs) / median(ours), 2)


# (runs that fit, seconds that they live), at a put per second: bound by size, by time.
MIXES = ((5_000, 1e9), (10**6, 5_000.0))


def gets_after(index: int) -> tuple[int, int, int, int]:
    """Which puts to look up after the given one; often the last is long gone."""
    back = index * 7919 % 4_000
    gone = 9_000 if index % 5 < 2 else 1
    return (
        max(index - back, 0),
        max(index - back // 2, 0),
        max(index - back // 3, 0),
        max(index - gone, 0),
    )


def our_mix(keys: list[RunKey], held: int, ttl_s: float) -> float:
    """Seconds of the mix on a RunCache."""
    ttl = Ttl(ttl_s, None, ttl_s)
    cache: RunCache[int] = RunCache(Settings(held * RUN_BYTES, 10**9, ttl))
    lookups = [[keys[i] for i in gets_after(index)] for index in range(len(keys))]

    def mix() -> None:
        now_s = 0.0
        for index, key in enumerate(keys):
            now_s += 1.0
            fits, _ = cache.reserve(RUN_BYTES, now_s)
            assert fits
            cache.insert(
                key, index, slot=Slot(RUN_BYTES), expected_reads=0, now_s=now_s
            )
            for wanted in lookups[index]:
                cache.get(wanted, now_s)
            if index % 64 == 0:
                cache.expire(now_s)

    return seconds(mix)


def their_mix(keys: list[RunKey], held: int, ttl_s: float) -> float:
    """Seconds of the mix on a TLRUCache."""
    now_s = 0.0
    cache: cachetools.TLRUCache[RunKey, tuple[int, int]] = cachetools.TLRUCache(
        maxsize=held * RUN_BYTES,
        ttu=lambda _key, _value, time_s: time_s + ttl_s,
        timer=lambda: now_s,
        getsizeof=lambda value: value[1],
    )
    lookups = [[keys[i] for i in gets_after(index)] for index in range(len(keys))]

    def mix() -> None:
        nonlocal now_s
        for index, key in enumerate(keys):
            now_s += 1.0
            cache[key] = (index, RUN_BYTES)
            for wanted in lookups[index]:
                try:  # noqa: SIM105 - faster than suppress() and than its get()
                    cache[wanted]
                except KeyError:
                    pass
            if index % 64 == 0:
                cache.expire()

    return seconds(mix)


def seconds(work: Callable[[], None]) -> float:
    """How long the work takes."""
    gc.collect()
    gc.disable()
    try:
        start_s = time.process_time()
        work()
        return time.process_time() - start_s
    finally:
        gc.enable()


if __name__ == "__main__":
    record.run("core", measure, ("cachetools", "sortedcontainers"))
