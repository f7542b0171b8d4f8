"""Real nodes, loaders and tasks, as processes, but without Spark."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, Plan
from sparkcache.errors import SourceError
from sparkcache.model import Position
from sparkcache_pulsar.testing import synthetic_topic, write_directory
from tests.integration.executor import TOPIC, Executor, digest, until
from tests.integration.nodes import (
    CONFIG,
    EITHER_ENGINE,
    RUNS,
    frozen,
    load_twice_at_once,
    memfd_bytes,
    processes,
    processes_memfd_bytes,
    stored_bytes,
    write_topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.connector import DecodedRun
    from sparkcache.fetch import Scan


def batches_of(scan: Scan, runs: int) -> Iterator[tuple[Scan, Position]]:
    """Cut a scan into batches of at most `runs` runs; yield each with its end."""
    for run_slice in scan.slices:
        for start in range(0, len(run_slice.runs), runs):
            stop = min(start + runs, len(run_slice.runs))
            part = replace(run_slice, start=start, stop=stop)
            end = Position(run_slice.ledger.id, run_slice.runs[stop - 1].last + 1)
            yield replace(scan, slices=(part,)), end


@EITHER_ENGINE
def test_tasks_that_begin_together_elect_one_node(
    executor: Executor, content: str
) -> None:
    tasks = [executor.start_task() for _ in range(6)]
    for task in tasks:
        out, errors = task.communicate()
        assert (out.strip(), errors) == (content, "")
    assert len(processes(executor)) == 2
    metrics = executor.metrics()
    assert metrics.loads == metrics.gets == 6
    assert metrics.received_bytes == stored_bytes(executor)
    (topic,) = executor.topic_metrics()
    assert (topic.requests, topic.gets) == (metrics.requests, metrics.gets)
    assert (topic.runs, topic.kept_bytes) == (metrics.runs, metrics.kept_bytes)
    mode = stat.S_IMODE(executor.address.directory.stat().st_mode)
    assert mode == 0o700


@EITHER_ENGINE
def test_memory_that_a_killed_task_mapped_is_freed(
    executor: Executor, content: str
) -> None:
    task = executor.start_task(runs=7, stdin=subprocess.PIPE)
    with task:
        assert task.stdout is not None
        assert task.stdout.readline() == "7\n"
        nothing = replace(executor.config, max_bytes=0)
        assert digest(executor.read(1, config=nothing)) == content
        # Only what the other task maps remains, once loaders have unmapped theirs.
        until(lambda: executor.metrics().held_bytes == memfd_bytes(executor, task.pid))
        assert executor.metrics().held_bytes > 0
        task.kill()
    until(lambda: executor.metrics().held_bytes == 0)
    until(lambda: memfd_bytes(executor) == 0)


@EITHER_ENGINE
def test_memory_counts_as_long_as_a_batch_is_referenced(
    executor: Executor,
) -> None:
    reading = executor.read()
    runs = list(reading)
    nothing = replace(executor.config, max_bytes=0)
    digest(executor.read(1, config=nothing))
    until(lambda: executor.metrics().held_bytes == memfd_bytes(executor, os.getpid()))
    assert executor.metrics().held_bytes > 0
    runs.clear()
    until(lambda: executor.metrics().held_bytes == 0)


@EITHER_ENGINE
def test_batches_of_a_stream_that_end_within_blocks_fetch_each_once(
    executor: Executor, content: str
) -> None:
    whole = executor.scan()

    def read() -> Iterator[DecodedRun]:
        rest = Consumer(whole.slices[0].ledger.topic)
        for number, (scan, end) in enumerate(batches_of(whole, 2), start=1):
            stream = Plan("run/query/stream", (rest,), batch=2 * number)
            batch = replace(rest, end=end)
            yield from executor.read(number, scan, consumer=batch, plans=(stream,))
            rest = replace(rest, start=end)

    assert digest(read()) == content
    until(lambda: executor.metrics().gets == 6)  # the last load reports its end
    metrics = executor.metrics()
    assert metrics.loads == 6
    assert metrics.received_bytes == stored_bytes(executor)


@EITHER_ENGINE
def test_memory_never_exceeds_the_limit(executor: Executor, content: str) -> None:
    executor = replace(
        executor, config=replace(executor.config, max_bytes=600_000, loaders=2)
    )
    tasks = [executor.start_task(stage) for stage in range(3)]
    peak_bytes = 0
    while running := [task for task in tasks if task.poll() is None]:
        with suppress(subprocess.TimeoutExpired):
            running[0].wait(0.05)
        pids = [task.pid for task in running if task.poll() is None]
        with frozen([*processes(executor), *pids]):
            peak_bytes = max(peak_bytes, memfd_bytes(executor, *pids))
    for task in tasks:
        out, errors = task.communicate()
        assert (out.strip(), errors) == (content, "")
    assert 0 < peak_bytes <= executor.config.max_bytes
    assert peak_bytes <= executor.metrics().peak_bytes <= executor.config.max_bytes


def test_without_room_a_task_loads_for_itself(executor: Executor, content: str) -> None:
    nothing = replace(executor.config, max_bytes=0)
    assert digest(executor.read(config=nothing)) == content
    metrics = executor.metrics()
    assert metrics.direct == metrics.requests == RUNS
    assert metrics.received_bytes == stored_bytes(executor)
    assert metrics.peak_bytes == 0


def test_an_object_that_was_overwritten_is_an_error(
    executor: Executor, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    write_topic(own)
    executor = replace(executor, topic=own)
    scan = executor.scan()
    write_topic(own, seed=1)
    with pytest.raises(SourceError, match="it was overwritten"):
        digest(executor.read(scan=scan))
    assert digest(executor.read(1)) != ""


def test_an_object_that_is_gone_is_an_error(executor: Executor, tmp_path: Path) -> None:
    own = tmp_path / "own"
    write_topic(own)
    executor = replace(executor, topic=own)
    scan = executor.scan()
    reading = executor.read(scan=scan)
    next(reading)
    shutil.rmtree(own)
    with pytest.raises(SourceError, match=r"(?i)no such file"):
        digest(reading)
    assert executor.metrics().failures >= 2  # loading ahead fails, too


@EITHER_ENGINE
def test_settings_of_a_later_stage_reach_the_node(executor: Executor) -> None:
    digest(executor.read(1))
    config = replace(executor.config, loaders=3, max_bytes=300_000)
    load_twice_at_once(replace(executor, config=config))
    assert len(processes(executor)) == 3
    assert executor.metrics().loaders == 2
    assert 0 < executor.metrics().held_bytes <= 300_000
    assert executor.metrics().loader_bytes > 0
    digest(executor.read(1))
    assert len(processes(executor)) == 3
    digest(executor.read(3))
    until(lambda: len(processes(executor)) == 2)


def test_loaders_that_keep_too_much_memory_are_replaced(executor: Executor) -> None:
    config = replace(executor.config, loader_memory_bytes=1)
    scan = executor.scan()
    ends = replace(scan, slices=(scan.slices[0], scan.slices[-1]))
    reading = executor.read(scan=ends, config=config)
    first = [next(reading)]
    node, loader = processes(executor)
    without = replace(config, enabled=False)
    content = digest(executor.read(scan=ends, config=without))
    assert digest([*first, *reading]) == content
    until(lambda: loader not in processes(executor))
    assert processes(executor)[:1] == [node]
    assert executor.metrics().failures == 0


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            replace(CONFIG, ttl_create_s=1, ttl_after_read_s=1),
            id="time to live",
        ),
        pytest.param(replace(CONFIG, max_life_s=1), id="maximum age"),
    ],
)
def test_memory_is_freed_within_two_seconds_without_any_request(
    executor: Executor, config: CacheConfig
) -> None:
    """No message is sent meanwhile: the test inspects the node's descriptors."""
    begin_s = time.monotonic()
    reading = executor.read(config=config)
    next(reading)
    reading.close()
    until(lambda: memfd_bytes(executor) == 0, deadline_s=1 + 2)
    assert time.monotonic() - begin_s >= 1, "the run was evicted before its time"
    metrics = executor.metrics()
    assert metrics.evicted_by_ttl == metrics.inserts > 0


def test_many_overdue_runs_are_freed_just_as_soon(
    executor: Executor, tmp_path: Path
) -> None:
    """Eviction takes nine passes, which follow each other without a pause."""
    write_directory(tmp_path / "large", synthetic_topic(TOPIC, 128 << 20))
    long = CacheConfig(loaders=1, ttl_after_read_s=600)
    executor = replace(executor, topic=tmp_path / "large", config=long)
    scan = executor.scan()
    for _ in executor.read(scan=scan):
        pass
    assert memfd_bytes(executor) > 128 << 20
    short = replace(long, ttl_create_s=0.1, ttl_after_read_s=0.1)
    reading = executor.read(1, scan, short)
    next(reading)
    reading.close()
    until(lambda: memfd_bytes(executor) == 0, deadline_s=2)


def test_a_mapped_run_outlives_its_time_to_live_in_the_task(
    executor: Executor, content: str
) -> None:
    short = replace(executor.config, ttl_create_s=1, ttl_after_read_s=1, max_life_s=1)
    reading = executor.read(config=short)
    runs = list(reading)
    node = processes(executor)[0]
    until(lambda: processes_memfd_bytes([node]) == 0, deadline_s=1 + 2)
    assert digest(runs) == content


def test_top_shows_the_nodes_of_this_machine(executor: Executor) -> None:
    for _ in range(2):
        digest(executor.read())
    metrics = executor.metrics()
    done = subprocess.run(
        [sys.executable, "-m", "sparkcache.top", "--once"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    head, *lines = (line.split() for line in done.stdout.splitlines())
    assert head[:3] == ["node", "requests", "hit_ratio"]
    (mine,) = [line for line in lines if line[0] == str(processes(executor)[0])]
    assert mine[1] == str(metrics.requests)
    assert mine[2:4] == [f"{100 * metrics.hit_ratio:.1f}", "%"]
