"""Many tasks at once against one node, and what the node's memory is meanwhile.

    python tests/stress/load.py [--json] [--save]

By number of concurrent tasks, each of which reads runs of 4 KiB that the node holds:

    p50_us, p99_us   how long a task waits for a run, mapped and decoded
    runs_s           runs a second, of all tasks together
    ring_p50_us      how long with engine=ring, which sends several runs at once

The tasks are threads of at most 8 processes. With more tasks than cores they wait for
each other more than for the node.

`bytes_over_cap` is the largest sample of the memory of runs / `max_bytes`, while 200
tasks read runs that need twice as much, and every fourth of them keeps all that it
reads. It counts what the node, its loaders and the tasks have open or map,
while all of them are stopped. `samples` is the number of samples.

`bytes_per_run` is what the private memory of a process grows by for each of a million
runs that the core holds, with their keys and their topics.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from sparkcache.cache import RunCache, Settings, Ttl
from sparkcache.config import CacheConfig
from sparkcache.model import Slot
from sparkcache_pulsar.testing import synthetic_topic, write_directory
from tests import leaks
from tests.benchmarks import core, record
from tests.integration.executor import TOPIC, Executor
from tests.integration.nodes import frozen, processes

if TYPE_CHECKING:
    from collections.abc import Iterator

KIB = 1 << 10
TASKS = (1, 8, 64, 200)
PROCESSES = 8
TOPIC_RUNS = 1500
RUNS = 24_000
"""All tasks together read about as many, but each at least 100."""
CAPPED_RUNS = 200
PAUSE_S = 0.1
MILLION = 1_000_000
CONFIG = CacheConfig(
    run_bytes=4 * KIB,
    loaders=2,
    ttl_create_s=3600,
    ttl_after_read_s=3600,
    startup_timeout_s=60,
)
_MAPPED = re.compile(r"^(\w+)-(\w+) \S+ \S+ \S+ (\d+) +/memfd:sparkcache", re.MULTILINE)


def measure() -> dict[str, Any]:
    """Measure it all."""
    return latencies() | capped() | {"bytes_per_run": bytes_per_run()}


# Latency


def latencies() -> dict[str, Any]:
    """Time tasks that read what a node holds, with each engine."""
    of_ring = times_of(replace(CONFIG, engine="ring", segment_bytes=16 * KIB * KIB))
    return times_of(CONFIG) | {"ring_p50_us": of_ring["p50_us"]}


def times_of(config: CacheConfig) -> dict[str, dict[str, int]]:
    """Time tasks with these settings."""
    result: dict[str, dict[str, int]] = {"p50_us": {}, "p99_us": {}, "runs_s": {}}
    with node(config) as executor:
        for _ in executor.read():
            pass
        held = executor.metrics().runs
        for tasks in TASKS:
            each = min(max(RUNS // tasks, 100), held)
            waits_s, runs_s = read_at_once(executor, tasks, each)
            cuts = quantiles(waits_s, n=100)
            result["p50_us"][str(tasks)] = round(cuts[49] * 1e6)
            result["p99_us"][str(tasks)] = round(cuts[98] * 1e6)
            result["runs_s"][str(tasks)] = round(runs_s)
        found = executor.metrics()
        assert found.misses + found.waits + found.prefetch_hits <= found.inserts
    return result


def read_at_once(
    executor: Executor, tasks: int, runs: int
) -> tuple[list[float], float]:
    """Return how long each run took, and how many there were a second."""
    with workers(executor, tasks, runs, keep=0) as started:
        replies = [msgspec.json.decode(worker.communicate()[0]) for worker in started]
    waits_s = [wait_s for reply in replies for wait_s in reply["waits_s"]]
    begin_s = min(reply["begin_s"] for reply in replies)
    end_s = max(reply["end_s"] for reply in replies)
    return waits_s, len(waits_s) / (end_s - begin_s)


@contextmanager
def workers(
    executor: Executor, tasks: int, runs: int, *, keep: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes with tasks, which begin at the same time."""
    count = min(tasks, PROCESSES)
    shares = [len(range(number, tasks, count)) for number in range(count)]
    config = msgspec.json.encode(executor.config).decode()
    command = [sys.executable, __file__, str(executor.topic), config]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, str(share), str(runs), str(keep)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                )
            )
            for share in shares
        ]
        for worker in started:
            assert worker.stdout is not None
            worker.stdout.readline()
        for worker in started:
            assert worker.stdin is not None
            worker.stdin.write(b"\n")
            worker.stdin.flush()
        yield started


def work(topic: str, config_json: str, tasks: str, runs: str, keep: str) -> None:
    """Run some tasks in this process; print how long they took."""
    config = msgspec.json.decode(config_json, type=CacheConfig)
    directory = Path(os.environ["SPARK_LOCAL_DIRS"])
    executor = Executor(directory, Path(topic), config)
    scan = executor.scan()
    waits_s: list[float] = []

    def task(number: int) -> None:
        stage = os.getpid() * 1000 + number
        kept, begin_s = [], time.perf_counter()
        for run in islice(executor.read(stage, scan), int(runs)):
            now_s = time.perf_counter()
            waits_s.append(now_s - begin_s)
            if int(keep) and number % int(keep) == 0:
                kept.append(run)
            begin_s = time.perf_counter()

    threads = [threading.Thread(target=task, args=(n,)) for n in range(int(tasks))]
    print(flush=True)
    sys.stdin.readline()
    begin_s = time.time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reply = {"begin_s": begin_s, "end_s": time.time(), "waits_s": waits_s}
    sys.stdout.buffer.write(msgspec.json.encode(reply))


@contextmanager
def node(config: CacheConfig) -> Iterator[Executor]:
    """An executor whose topic has TOPIC_RUNS runs of one entry of 4 KiB."""
    with tempfile.TemporaryDirectory() as name:
        directory, topic = Path(name) / "executor", Path(name) / "topic"
        directory.mkdir()
        objects = synthetic_topic(
            TOPIC, TOPIC_RUNS * 4 * KIB, value_bytes=4 * KIB - 200, batch_bytes=0
        )
        write_directory(topic, objects)
        os.environ["SPARK_LOCAL_DIRS"] = str(directory)
        yield Executor(directory, topic, config)
    assert leaks.gone(str(directory))


# The cap


def capped() -> dict[str, Any]:
    """Sample the memory of runs while tasks read more than the node may hold."""
    with node(CONFIG) as executor:
        for _ in executor.read():
            pass
        found = executor.metrics()
        max_bytes = found.kept_bytes * CAPPED_RUNS // found.runs // 2
    with node(replace(CONFIG, max_bytes=max_bytes)) as executor:
        samples = []
        tasks = TASKS[-1]
        with workers(executor, tasks, CAPPED_RUNS, keep=4) as started:
            done = [threading.Thread(target=worker.communicate) for worker in started]
            for thread in done:
                thread.start()
            while any(thread.is_alive() for thread in done):
                tasks_at = [worker.pid for worker in started]
                pids = [*processes(executor), *tasks_at]
                with frozen(pids):
                    samples.append(memory_bytes(pids))
                time.sleep(PAUSE_S)
    return {
        "bytes_over_cap": round(max(samples) / max_bytes, 3),
        "samples": len(samples),
    }


def memory_bytes(pids: list[int]) -> int:
    """Size of the runs that any of the processes has open or maps."""
    sizes: dict[int, int] = {}
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            text = Path(f"/proc/{pid}/maps").read_text()
            for begin, end, inode in _MAPPED.findall(text):
                sizes.setdefault(int(inode), int(end, 16) - int(begin, 16))
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                if str(fd.readlink()).startswith("/memfd:sparkcache"):
                    status = fd.stat()
                    sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


# A million runs


def bytes_per_run() -> int:
    """Return what the core needs for each of a million runs."""
    before = private_bytes()
    cache: RunCache[int] = RunCache(
        Settings(2 * MILLION * 4 * KIB, 2 * MILLION, Ttl(3600, None, 3600))
    )
    for first in range(0, MILLION, core.RUNS):
        for key in core.keys_of(1_000):
            run = replace(
                key.run, first=key.run.first + first, last=key.run.last + first
            )
            cache.reserve(4 * KIB, 0)
            cache.insert(
                replace(key, run=run), 0, slot=Slot(4 * KIB), expected_reads=0, now_s=0
            )
    assert len(cache) == MILLION
    return round((private_bytes() - before) / MILLION)


def private_bytes() -> int:
    """Return the private memory of this process."""
    return int(psutil.Process().memory_full_info().uss)


if __name__ == "__main__":
    if len(sys.argv) == 6:
        work(*sys.argv[1:])
    else:
        leaks.become_reaper()
        record.run("load", measure, ("pyarrow", "msgspec"), folder="stress")
