"""What the pure core costs, whatever the number of topics, and next to cachetools.

    python tests/benchmarks/core.py [--json] [--save]

By number of topics, for the same number of runs, in nanoseconds each:

    ns_insert   reserve and insert, where there is room
    ns_hit      get, of runs at random: few of them are in the processor's caches
    ns_evict    a run, by passes that free 2 % of all each

`hit_growth` and `evict_growth` are those with 100000 topics / those with 10.

`over_cachetools` is the speed of ours / that of cachetools.TLRUCache for the same calls
with the same keys: a put, four gets, one in ten of which misses, and an expire every 64
puts; once bound by size, once by time. Ours does more for it: it counts what is
reserved and lent, and finds runs by ledger and position.

Rounds alternate; medians after a warm-up. As in timeit, the garbage collector is off
while a measurement runs.
"""

from __future__ import annotations

import gc
import random
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import cachetools

from sparkcache.cache import RunCache, Settings, Ttl
from sparkcache.model import Ledger, ObjectId, Run, RunKey, Slot
from tests.benchmarks import record

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
RUNS = 200_000
TOPICS = (10, 1_000, 100_000)
RUNS_PER_LEDGER = 500
RUN_BYTES = 1 << 20
DUAL_TTL = Ttl(create_s=180.0, after_read_s=10.0, expected_s=600.0)


def measure() -> dict[str, Any]:
    """Measure ours by number of topics, and beside cachetools."""
    return by_topics() | {"over_cachetools": over_cachetools()}


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
        start_s = time.perf_counter()
        work()
        return time.perf_counter() - start_s
    finally:
        gc.enable()


if __name__ == "__main__":
    record.run("core", measure, ("cachetools",))
