"""Scans of a topic that is larger than the cache, beside scans without a cache.

    .venv/bin/python tests/benchmarks/large_topic.py [--json] [--save]

A topic of 1 GiB of values in 16 ledgers, half of each value random, is scanned on
local[2] to Spark's noop sink: every column of every row is computed, none is kept.
Nothing is held beforehand. The topic lies in a local directory ("0ms"), and in an S3
server that answers after 20 ms ("20ms"), which shares the two cores.

    none            enabled=false: each task loads for itself
    nothing kept    one scan, not planned, with a cache of a tenth of what is decoded
    third           three planned consumers in turns, a cache of a third of it
    full            the same, a cache that holds all

Each is done through both doors: read in Python, and read in the JVM. Without a cache
both read in Python.

    nothing_kept_seconds_over_none      seconds of one scan / those without a cache
    nothing_kept_cpu_over_none          likewise, processor time of the driver, the
                                        JVM, its Python workers, the node, its loaders
    third_seconds_over_none             seconds of three scans / those without a cache
    third_bytes_over_min                stored bytes that were fetched / that MIN, an
                                        oracle, would fetch of the runs they asked for
    full_seconds_over_none              as third_seconds_over_none

Seconds are medians of 3 rounds for one scan, after a warm-up, and of 2 for three in
turns; in a round the ways alternate. More rounds would take more than five minutes.
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import sparkcache
from sparkcache import CacheConfig
from sparkcache.simulate.belady import belady
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.driver.registration import name_of_installed
from sparkcache.testing.s3_server import S3Server
from sparkcache.trace import parse
from sparkcache_pulsar.testing import synthetic_topic, write_directory
from tests.benchmarks import record, remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

TOPIC = "persistent://bench/large/topic"
VALUES_BYTES = 1 << 30
LEDGERS = 16
LATENCY_S = 0.02
CONSUMERS = 3
SCANS, TURNS = 3, 2
CONF = "spark.sparkcache."
DOORS = ("python", "jvm")
_PR_SET_CHILD_SUBREAPER = 36


def measure() -> dict[str, Any]:
    """Measure at both latencies."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # for Spent
    found: dict[str, dict[str, dict[str, float]]] = {}
    with S3Server() as server, server.as_environment(), topic(server) as roots:
        servers = {child.pid for child in psutil.Process().children()}
        spark = remote.session({"spark.scheduler.mode": "FIFO"})
        try:
            sparkcache.install(spark, CacheConfig())
            for latency, root in roots.items():
                with tempfile.TemporaryDirectory() as traces:
                    one = LargeTopic(spark, root, servers, Path(traces))
                    measured = one.measure()
                for key, by_door in measured.items():
                    found.setdefault(key, {})[latency] = by_door
        finally:
            spark.stop()
    return found


@contextmanager
def topic(server: S3Server) -> Iterator[dict[str, str]]:
    """Write the topic to a directory and to the server; yield its root by latency."""
    with tempfile.TemporaryDirectory() as directory:
        objects = synthetic_topic(TOPIC, VALUES_BYTES, ledgers=LEDGERS)
        server.create_bucket(remote.BUCKET)
        for stored in objects:
            write_directory(Path(directory), [stored])
            server.put(remote.BUCKET, stored.key, stored.data, stored.metadata)
        server.behave(latency_s=LATENCY_S)
        yield {"0ms": directory, "20ms": remote.ROOT}


class Spent:
    """Seconds since it was made, and processor time of this process and its children.

    Args:
        others: Ids of processes that do not count.

    """

    def __init__(self, others: set[int]) -> None:
        self._others = others
        self._begun_cpu_s = self._cpu_s()
        self._begun_s = time.perf_counter()

    def so_far(self) -> dict[str, float]:
        """Return both."""
        seconds = time.perf_counter() - self._begun_s
        return {"seconds": seconds, "cpu": self._cpu_s() - self._begun_cpu_s}

    def _cpu_s(self) -> float:
        me = psutil.Process()
        processes = [me, *me.children(recursive=True)]
        return sum(
            sum(p.cpu_times()[:4]) for p in processes if p.pid not in self._others
        )


class LargeTopic:
    """The topic in one place, scanned in several ways."""

    def __init__(
        self, spark: SparkSession, root: str, servers: set[int], traces: Path
    ) -> None:
        self._spark = spark
        self._root = root
        self._servers = servers
        self._names = {"python": name_of_installed(spark), "jvm": "sparkcache"}
        self._spent: dict[str, list[dict[str, float]]] = {}
        self._traces = traces

    def measure(self) -> dict[str, dict[str, float]]:
        """Return each key by door."""
        decoded_bytes = self.decoded_bytes()
        tenth, third = decoded_bytes // 10, decoded_bytes // 3
        ones: dict[str, Callable[[], None]] = {"none": self.uncached}
        turns: dict[str, Callable[[], None]] = {"none x3": self.uncached_in_turns}
        for door in DOORS:
            ones[f"nothing kept {door}"] = partial(self.once, door, tenth)
            turns[f"third {door}"] = partial(self.in_turns_recorded, door, third)
            turns[f"full {door}"] = partial(self.in_turns, door, 2 * decoded_bytes)
        self.alternate(dict.fromkeys(["warm-up"], self.warm_up))
        for _ in range(SCANS):
            self.alternate(ones)
        for _ in range(TURNS):
            self.alternate(turns)
        ratios = {
            "nothing_kept_seconds_over_none": ("nothing kept", "none", "seconds"),
            "nothing_kept_cpu_over_none": ("nothing kept", "none", "cpu"),
            "third_seconds_over_none": ("third", "none x3", "seconds"),
            "third_cpu_over_none": ("third", "none x3", "cpu"),
            "full_seconds_over_none": ("full", "none x3", "seconds"),
            "full_cpu_over_none": ("full", "none x3", "cpu"),
        }
        found = {
            key: {
                door: round(self.median(f"{way} {door}", of) / self.median(base, of), 3)
                for door in DOORS
            }
            for key, (way, base, of) in ratios.items()
        }
        found["third_bytes_over_min"] = {
            door: self.bytes_over_min(door, third) for door in DOORS
        }
        for of in ("seconds", "cpu"):
            found[of] = {way: round(self.median(way, of), 3) for way in self._spent}
        return found

    def alternate(self, ways: dict[str, Callable[[], None]]) -> None:
        """Do each in turn, and note what each spends."""
        for name, way in ways.items():
            sparkcache.clear(self._spark)
            received = self.received_bytes()
            spent = Spent(self._servers)
            way()
            found = spent.so_far()
            found["received"] = self.received_bytes() - received
            self._spent.setdefault(name, []).append(found)

    def warm_up(self) -> None:
        """Scan through each door, and without a cache."""
        self.uncached()
        for door in DOORS:
            scan(self.rows(door))

    def median(self, way: str, of: str) -> float:
        """Return the median of what a way spends of one kind."""
        return statistics.median(spent[of] for spent in self._spent[way])

    def rows(self, door: str, **options: str) -> DataFrame:
        """Return the topic, read through a door."""
        reader = self._spark.read.format(self._names[door]).option("topic", TOPIC)
        return reader.options(**options).load(self._root)

    def uncached(self) -> None:
        """Scan once without a cache."""
        scan(self.rows("python", enabled="false"))

    def uncached_in_turns(self) -> None:
        """Scan as often as there are consumers, without a cache."""
        for _ in range(CONSUMERS):
            self.uncached()

    def once(self, door: str, max_bytes: int) -> None:
        """Scan once, not planned."""
        self._spark.conf.set(CONF + "maxBytes", str(max_bytes))
        scan(self.rows(door))

    def in_turns(self, door: str, max_bytes: int) -> None:
        """Scan for each of several planned consumers, one after another."""
        self._spark.conf.set(CONF + "maxBytes", str(max_bytes))
        rows = self.rows(door)
        with sparkcache.plan(*[self.rows("jvm")] * CONSUMERS):  # the same consumers
            for _ in range(CONSUMERS):
                scan(rows)

    def decoded_bytes(self) -> int:
        """Return what the whole topic takes in memory."""
        self._spark.conf.set(CONF + "maxBytes", str(8 << 30))
        rows = self.rows("jvm")
        with sparkcache.plan(rows, rows):
            scan(rows)
            return sum(node.held_bytes for node in self.nodes())

    def in_turns_recorded(self, door: str, max_bytes: int) -> None:
        """Scan for each of several planned consumers, and record what they ask for."""
        self._spark.conf.set(CONF + "trace", str(self._traces / door))
        self.in_turns(door, max_bytes)
        self._spark.conf.unset(CONF + "trace")

    def bytes_over_min(self, door: str, max_bytes: int) -> float:
        """Return what was fetched in turns over what MIN would fetch."""
        paths = sorted(
            self._traces.glob(f"{door}/*"), key=lambda it: it.stat().st_mtime
        )
        least = belady(parse(paths[-1].read_text().splitlines()), max_bytes)
        return round(self.median(f"third {door}", "received") / least.loaded_bytes, 4)

    def received_bytes(self) -> float:
        """Return what all nodes and their tasks have received from the storage."""
        return float(sum(node.received_bytes for node in self.nodes()))

    def nodes(self) -> list[Any]:
        """Return the metrics of all nodes."""
        return list(node_metrics(self._spark).values())


def scan(rows: DataFrame) -> None:
    """Compute every row, and keep none."""
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    record.run("large_topic", measure, ("pyspark", "pyarrow", "moto"))
