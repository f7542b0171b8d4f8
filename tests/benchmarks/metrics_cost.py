"""What it costs to see the cache: warm scans with everything on, beside everything off.

    .venv/bin/python tests/benchmarks/metrics_cost.py --json

Two sessions on local[2] scan the same cached topic in turns, with runs of 64 KiB, so
that there are many of them:

    on      the plugin reports to UI and event log, its tab is looked at every 2 s
    off     no plugin; Spark's own UI and event log are there as well

`on_over_off` is speed of on / speed of off, medians of 21. What a node counts cannot be
switched off; `node_us_per_hit` is the CPU time of a node's decision on a hit, without
sockets and without reading ahead, and `node_us_of_counting` that part of it which goes
when the counting is taken out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.benchmarks import record, warm_scan

ROUNDS = 21
WARM_UPS = 4
HITS = 10_000
LOOK_S = 2.0


def compare() -> dict[str, float]:
    """Scan in turns in two sessions, then count in one node."""
    with tempfile.TemporaryDirectory() as name:
        warm_scan.write_topic(Path(name))
        sessions = {case: Session(case, name) for case in ("on", "off")}
        seconds: dict[str, list[float]] = {case: [] for case in sessions}
        try:
            for turn in range(WARM_UPS + ROUNDS):
                for case in list(sessions) if turn % 2 else reversed(sessions):
                    spent = sessions[case].scan()
                    if turn >= WARM_UPS:
                        seconds[case].append(spent)
        finally:
            for session in sessions.values():
                session.close()
    on, off = (statistics.median(seconds[case]) for case in ("on", "off"))
    node_on, node_off = node_seconds()
    return {
        "on_over_off": round(off / on, 3),
        "seconds_on": round(on, 3),
        "seconds_off": round(off, 3),
        "node_us_per_hit": round(1e6 * node_on / HITS, 2),
        "node_us_of_counting": round(1e6 * (node_on - node_off) / HITS, 2),
    }


class Session:
    """A Spark session in a process of its own, which scans when it is asked to."""

    def __init__(self, case: str, directory: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, case, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer_s()

    def scan(self) -> float:
        """Scan once; return the seconds."""
        assert self._process.stdin is not None
        print("scan", file=self._process.stdin, flush=True)
        return self._answer_s()

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _answer_s(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline().split()[-1])


def serve(case: str, directory: str) -> None:
    """Be such a session, for as long as standard input says so."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import sparkcache
    from sparkcache import CacheConfig

    builder = (
        sparkcache.configure(SparkSession.builder.master("local[2]"))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", directory)
    )
    if case == "off":
        builder = builder.config("spark.plugins", "").config("spark.jars", "")
    spark = builder.getOrCreate()
    sparkcache.install(
        spark,
        CacheConfig(max_bytes=2 << 30, run_bytes=64 << 10, partition_bytes=16 << 20),
    )
    topic = spark.read.format("sparkcache").option("topic", warm_scan.TOPIC)
    rows = topic.load(directory)
    with sparkcache.plan(*[rows] * (WARM_UPS + ROUNDS + 3)):
        warm_scan.scan(rows)
        if case == "on":
            url = f"{spark.sparkContext.uiWebUrl}/sparkcache/json"
            threading.Thread(target=look, args=(url,), daemon=True).start()
        print(0, flush=True)
        for _ in sys.stdin:
            print(warm_scan.timed(lambda: warm_scan.scan(rows)), flush=True)
    spark.stop()


def look(url: str) -> None:
    """Look at the tab again and again, as its page does, until it is gone."""
    with suppress(OSError):
        while True:
            with urllib.request.urlopen(url) as answer:
                assert json.load(answer)["executors"] is not None
            time.sleep(LOOK_S)


def node_seconds() -> tuple[float, float]:
    """Return how long a node takes to serve hits, with its counting and without."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(ROUNDS + 1):
        for counts in (True, False) if turn % 2 else (False, True):
            seconds = hits_of_a_node(counts=counts)
            if turn:
                spent[counts].append(seconds)
    return statistics.median(spent[True]), statistics.median(spent[False])


def hits_of_a_node(*, counts: bool) -> float:
    """Read runs that are held; return the seconds."""
    from tests.unit.node.node_world import CONFIG, World

    world = World(replace(CONFIG, read_ahead_bytes=0))
    world.loader()
    world.read(world.of(0, 100))
    if not counts:
        silent: Any = Silent()
        counted = world.service._counts
        counted.topics = counted.times = counted.progress = silent
    began = time.process_time()
    for _ in range(HITS // 100):
        reader = world.of(0, 100)
        for _ in range(100):
            assert reader.ask() is not None
        reader.leave()
    return time.process_time() - began


class Silent:
    """Takes every count, and counts nothing."""

    hits = prefetch_hits = waits = misses = served_bytes = 0

    def for_topic(self, *_: object) -> Silent:
        """Stand for the counts of a topic."""
        return self

    ask = for_topic

    def ignore(self, *_: object) -> None:
        """Count nothing."""

    set_group = insert = evict = served = evicted = begin = open = move = read = ignore


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("on", "off"):
        serve(*sys.argv[1:])
    else:
        record.run("metrics_cost", compare, ("pyspark", "pyarrow"))
