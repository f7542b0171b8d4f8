"""The two engines side by side: what a hit, an eviction and a byte cost.

    python tests/benchmarks/engines.py [--json] [--save]

`ring_hit_over_runs_hit_4k` is the speed of hits on runs of one entry of 4 KiB: one task
reads what a real node holds, at each place where it can be held; runs a second in the
ring / with engine runs. `us_hit_*` are microseconds a run, `_4m` those of runs of
4 MiB, of which each byte is looked at.

`ring_evict_growth` and `runs_evict_growth` are what the eviction of a run costs the
core with 100000 topics / with 10, for the same number of runs.

`ring_evict_cpu_share_100k` is the part that eviction has of the processor time of a
node and its loaders. The node's ring is full with runs of 4 KiB of 100000 topics, and
runs of other topics are loaded into it and read, each of which makes another one go.

`ring_bytes_held_over_cached` is memory that exists / memory of runs that look-ups find,
in a ring of 1 GiB that has been round, with runs of 0.5 to 4 MiB: the mean over all
insertions, and `_worst` right after a segment was given up.

Rounds alternate; medians after a warm-up. As in timeit, the garbage collector is off
while the core is measured.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from sparkcache import connector as connectors
from sparkcache.cache import (
    Engine,
    Ring,
    RingCache,
    RunCache,
    Settings,
    Ttl,
    resolve_ring,
)
from sparkcache.config import CacheConfig
from sparkcache.fetch import RunSlice, Scan
from sparkcache.node import server as server_module
from sparkcache.node.address import Address
from sparkcache.storage import Traffic, open_storage
from sparkcache_pulsar.testing import (
    Entry,
    Message,
    ledger_objects,
    synthetic_topic,
    write_directory,
)
from tests.benchmarks import cold_scan, core, record
from tests.integration.executor import TOPIC, Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkcache.model import RunKey
    from sparkcache.node.run_store import RunStore

ROUNDS = 7
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
FOREVER = Ttl(inf, None, inf)
LONG = CacheConfig(
    ttl_create_s=3600, ttl_after_read_s=3600, loaders=2, read_ahead_bytes=64 * MIB
)
SMALL_RUNS = 1500
CORE_RUNS = 100_000
EVICTED_AT_ONCE = 500
TOPICS_HELD = 100_000
RING_BYTES = TOPICS_HELD * 4 * KIB
WARM_UP, LOADED = 200, 5_000


def measure() -> dict[str, Any]:
    """Measure it all."""
    return hits() | evictions() | evict_share() | bytes_held()


# Hits


def hits() -> dict[str, Any]:
    """Time tasks that read what nodes hold."""
    small = us_per_run(SMALL_RUNS * 4 * KIB, 4 * KIB, run_bytes=4 * KIB)
    large = us_per_run(256 * MIB, 128 * KIB, run_bytes=4 * MIB)
    result: dict[str, Any] = {}
    for name, us in (("4k", small), ("4m", large)):
        result[f"ring_hit_over_runs_hit_{name}"] = round(us["runs"] / us["ring"], 2)
        result[f"us_hit_{name}"] = {engine: round(us[engine], 1) for engine in us}
    return result


def us_per_run(
    topic_bytes: int, batch_bytes: int, *, run_bytes: int
) -> dict[str, float]:
    """Return how long a run of a topic takes with each engine."""
    with ExitStack() as stack:
        topic = stack.enter_context(directory())
        objects = synthetic_topic(
            TOPIC,
            topic_bytes,
            value_bytes=min(batch_bytes, 4 * KIB) - 200,
            batch_bytes=0 if batch_bytes == 4 * KIB else batch_bytes,
        )
        write_directory(topic, objects)
        config = replace(LONG, run_bytes=run_bytes)
        executors = {
            "runs": replace(config, engine="runs"),
            "ring": replace(config, engine="ring"),
            "lists": replace(config, engine="ring", copy_entries=False),
        }
        nodes = {
            name: Executor(stack.enter_context(directory()), topic, settings)
            for name, settings in executors.items()
        }
        times: dict[str, list[float]] = {name: [] for name in nodes}
        for number in range(ROUNDS + 1):
            for name, node in nodes.items():
                value = us_of_a_run(node, number)
                if number:  # the first one loads
                    times[name].append(value)
        for node in nodes.values():
            found = node.metrics()
            assert found.misses + found.waits + found.prefetch_hits <= found.inserts
            assert found.inserts == found.runs
        return {name: median(found) for name, found in times.items()}


def us_of_a_run(node: Executor, stage: int) -> float:
    """Read everything; return how long a run took, in microseconds."""
    os.environ["SPARK_LOCAL_DIRS"] = str(node.directory)
    scan = node.scan()
    runs = 0
    begin_s = time.perf_counter()
    for run in node.read(stage, scan):
        runs += 1
        for batch in run.batches:
            batch.column("value").is_valid()
    return (time.perf_counter() - begin_s) / runs * 1e6


@contextmanager
def directory() -> Iterator[Path]:
    """Make a directory that vanishes, and the node of it with it."""
    path = Path(tempfile.mkdtemp())
    try:
        yield path
    finally:
        shutil.rmtree(path)


# Evictions


def evictions() -> dict[str, Any]:
    """Time evictions in the core by number of topics."""
    topics = (10, 100_000)
    keys = {number: core.keys_of(number)[: 2 * CORE_RUNS] for number in topics}
    ring = Settings(CORE_RUNS * KIB, 10**9, FOREVER, ring=Ring(EVICTED_AT_ONCE * KIB))
    settings = {"ring": ring, "runs": replace(ring, ring=None)}
    times: dict[tuple[str, int], list[float]] = {
        (engine, number): [] for engine in settings for number in topics
    }
    for round_ in range(ROUNDS + 1):
        for (engine, number), found in times.items():
            value = ns_of_an_eviction(settings[engine], keys[number])
            if round_:
                found.append(value)
    result: dict[str, Any] = {}
    for engine in settings:
        few, many = (median(times[engine, number]) for number in topics)
        result[f"ns_evict_{engine}"] = {"10": round(few), "100000": round(many)}
        result[f"{engine}_evict_growth"] = round(many / few, 3)
    return result


def ns_of_an_eviction(settings: Settings, keys: list[RunKey]) -> float:
    """Fill a cache, then replace what is in it; time what evicts."""
    cache: Engine[int] = (
        RunCache(settings) if settings.ring is None else RingCache(settings)
    )
    spent_s, evicted = 0.0, 0
    gc.collect()
    gc.disable()
    try:
        for key in keys:
            begin_s = time.perf_counter()
            slot, removed = cache.reserve(KIB, 0)
            if removed:
                spent_s += time.perf_counter() - begin_s
                evicted += len(removed)
            assert slot is not None
            cache.insert(key, 0, slot=slot, expected_reads=0, now_s=0)
    finally:
        gc.enable()
    assert evicted >= CORE_RUNS
    return spent_s / evicted * 1e9


def evict_share() -> dict[str, Any]:
    """Load runs of many topics into a node that is full of those of very many."""
    with ExitStack() as stack:
        topic, executor = (stack.enter_context(directory()) for _ in range(2))
        slices = many_topics(topic, WARM_UP + LOADED)
        address = Address(executor)
        address.prepare()
        listener = address.listen()
        answer = executor / "answer"
        pid = os.fork()
        if not pid:
            try:
                serve(listener, answer)
            finally:
                os._exit(0)
        listener.close()
        try:
            read(executor, topic, slices[:WARM_UP])
            os.kill(pid, signal.SIGUSR1)
            read(executor, topic, slices[WARM_UP:])
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        spent_s, cpu_s, evicted = json.loads(answer.read_text())
    assert evicted >= LOADED * 0.9
    return {
        "ring_evict_cpu_share_100k": round(spent_s / cpu_s, 5),
        "us_evict_in_node_100k": round(spent_s / evicted * 1e6, 2),
        "us_cpu_of_a_load_100k": round(cpu_s / LOADED * 1e6),
    }


def many_topics(directory: Path, topics: int) -> list[RunSlice]:
    """Write topics of one run of 4 KiB; return how each is read."""
    entry = Entry((Message(os.urandom(4 * KIB - 200)),)).encode()
    for number in range(topics):
        name = f"persistent://shop/eu/orders-{number}"
        write_directory(directory, ledger_objects(name, number, [entry]))
    connector = connectors.find("pulsar")
    storage = open_storage(f"file://{directory}", LONG.storage, Traffic())
    catalog = connector.catalog(storage, {})
    found = []
    for number in range(topics):
        snapshot = catalog.snapshot(f"persistent://shop/eu/orders-{number}")
        [ledger] = snapshot.ledgers
        [extent] = ledger.extents
        runs = tuple(connector.runs(extent, 4 * KIB))
        found.append(RunSlice(ledger.ledger, extent, runs, 0, len(runs)))
    return found


def read(executor: Path, topic: Path, slices: list[RunSlice]) -> None:
    """Read these runs through the node, in one task."""
    os.environ["SPARK_LOCAL_DIRS"] = str(executor)
    config = replace(LONG, engine="ring", max_bytes=RING_BYTES)
    scan = Scan(f"file://{topic}", config.storage, config.scan, tuple(slices))
    for run in Executor(executor, topic, config).read(0, scan, config):
        assert run.batches[0].num_rows == 1


def serve(listener: Any, answer: Path) -> None:
    """Be that node; in the end answer what it has spent since the signal."""
    loop = asyncio.new_event_loop()
    config = replace(LONG, engine="ring", max_bytes=RING_BYTES)
    server = server_module._Server(loop, listener, config, cores=1)
    store = server.service._store
    keys = iter(core.keys_of(TOPICS_HELD))
    while not store._runs.counters.evicted_by_ring:
        key = next(keys)
        slot = store.reserve(key, 4 * KIB)
        assert slot is not None
        store.insert(key, slot, None, ahead=False)
    assert len({run.key.ledger.topic for run in store._runs.runs()}) >= 95_000
    spent = Spent(store)
    begin = {"cpu_s": 0.0, "evicted": 0}

    def watch() -> None:
        spent.seconds = 0.0
        begin.update(
            cpu_s=cold_scan.cpu_s(os.getpid()),
            evicted=store._runs.counters.evicted_by_ring,
        )

    loop.add_signal_handler(signal.SIGUSR1, watch)
    loop.add_signal_handler(signal.SIGTERM, loop.stop)
    loop.run_forever()
    evicted = store._runs.counters.evicted_by_ring - begin["evicted"]
    spent_s = cold_scan.cpu_s(os.getpid()) - begin["cpu_s"]
    answer.write_text(json.dumps([spent.seconds, spent_s, evicted]))
    server.close()


class Spent:
    """The time that a node has spent on giving up segments, and what was in them."""

    def __init__(self, store: RunStore) -> None:
        self.seconds = 0.0
        runs: Any = store._runs
        runs._evict = self._timed(runs._evict)
        runs._segments._rotate = self._timed(runs._segments._rotate)
        frees: Any = store
        frees._free = self._timed(store._free)

    def _timed(self, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(argument: Any) -> Any:
            begin_s = time.perf_counter()
            result = work(argument)
            self.seconds += time.perf_counter() - begin_s
            return result

        return timed


# Bytes


def bytes_held() -> dict[str, float]:
    """Compare what exists with what is found, while a ring goes round."""
    ring = resolve_ring(GIB, 0, granule_bytes=4 * KIB)
    cache: RingCache[int] = RingCache(Settings(GIB, 10**9, FOREVER, ring=ring))
    pick, keys = random.Random(1), iter(core.keys_of(10))
    found = []
    for _ in count():
        slot, _ = cache.reserve(pick.randrange(MIB // 2, 4 * MIB), 0)
        assert slot is not None
        cache.insert(next(keys), 0, slot=slot, expected_reads=0, now_s=0)
        if cache.counters.evicted_by_ring:
            found.append(cache.held_bytes / cache.kept_bytes)
        if len(found) == 5_000:
            break
    return {
        "ring_bytes_held_over_cached": round(mean(found), 3),
        "ring_bytes_held_over_cached_worst": round(max(found), 3),
    }


if __name__ == "__main__":
    record.run("engines", measure, ("pyarrow", "msgspec"))
