"""Real nodes, loaders and tasks, as processes; Spark alone is missing."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import leaks
import pytest
from executor import TOPIC, Executor, digest, until

from sparkcache.config import CacheConfig
from sparkcache.consumers import Consumer, Plan
from sparkcache.errors import SourceError
from sparkcache.model import Position
from sparkcache_pulsar.testing import (
    Entry,
    Message,
    ledger_objects,
    synthetic_topic,
    write_directory,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.connector import DecodedRun
    from sparkcache.fetch import Scan

ENTRIES = 60
VALUE_BYTES = 20_000
RUNS = 32
CONFIG = CacheConfig(
    run_bytes=64 << 10, loaders=1, request_timeout_s=20, startup_timeout_s=20
)


def write_topic(directory: Path, seed: int = 0) -> None:
    for ledger in (3, 5):
        entries = [
            Entry(
                (Message(bytes([seed, ledger, entry]) * (VALUE_BYTES // 3)),)
            ).encode()
            for entry in range(ENTRIES)
        ]
        objects = ledger_objects(TOPIC, ledger, entries, max_block_bytes=512 << 10)
        write_directory(directory, objects)


@pytest.fixture(scope="session")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ledgers, in 6 blocks and 32 runs; for all tests to read."""
    directory = tmp_path_factory.mktemp("topic")
    write_topic(directory)
    return directory


@pytest.fixture(scope="session")
def content(topic: Path) -> str:
    """What is in the topic, read without a cache."""
    config = replace(CONFIG, enabled=False)
    return digest(Executor(topic, topic, config).read())


EITHER_ENGINE = pytest.mark.parametrize(
    "executor",
    [{}, {"engine": "ring", "segment_bytes": 512 << 10}],
    ids=["runs", "ring"],
    indirect=True,
)


@pytest.fixture
def executor(
    topic: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Executor]:
    """An executor whose directory vanishes in the end, and its node with it."""
    directory = tmp_path / "executor"
    directory.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(directory))
    config = replace(CONFIG, **getattr(request, "param", {}))
    executor = Executor(directory, topic, config)
    yield executor
    shutil.rmtree(directory, ignore_errors=True)
    until(lambda: not leaks.processes_with(executor.marker))


def processes(executor: Executor) -> list[int]:
    """The node and its loaders; the node is the first, as it is their parent."""
    return leaks.processes_with(executor.marker)


def stored_bytes(executor: Executor) -> int:
    """Of all data objects of the topic."""
    return sum(
        path.stat().st_size
        for path in executor.topic.iterdir()
        if not path.name.endswith("-index")
    )


def batches_of(scan: Scan, runs: int) -> Iterator[tuple[Scan, Position]]:
    """Cut what is read into batches of so many runs at most; say where each ends."""
    for stretch in scan.stretches:
        for start in range(0, len(stretch.runs), runs):
            stop = min(start + runs, len(stretch.runs))
            part = replace(stretch, start=start, stop=stop)
            end = Position(stretch.ledger.id, stretch.runs[stop - 1].last + 1)
            yield replace(scan, stretches=(part,)), end


def only_warning(caplog: pytest.LogCaptureFixture) -> str:
    [record] = [r for r in caplog.records if r.levelno >= logging.WARNING]
    return record.getMessage()


@EITHER_ENGINE
def test_tasks_that_begin_together_elect_one_node(
    executor: Executor, content: str
) -> None:
    tasks = [executor.start_task() for _ in range(6)]
    for task in tasks:
        out, said = task.communicate()
        assert (out.strip(), said) == (content, "")
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
def test_a_killed_node_is_not_missed(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    reading = executor.read()
    first = [next(reading), next(reading)]
    old = processes(executor)
    os.kill(old[0], signal.SIGKILL)
    assert digest([*first, *reading]) == content
    assert "reading on without the cache" in only_warning(caplog)
    until(lambda: not set(old) & set(processes(executor)))
    assert digest(executor.read(1)) == content
    assert len(processes(executor)) == 2
    assert executor.metrics().requests > 0


@EITHER_ENGINE
def test_what_is_mapped_outlives_a_node_that_is_told_to_end(
    executor: Executor, content: str
) -> None:
    reading = executor.read()
    runs = [next(reading) for _ in range(RUNS // 2)]
    os.kill(processes(executor)[0], signal.SIGTERM)
    until(lambda: not processes(executor))
    assert digest([*runs, *reading]) == content


def test_a_node_killed_after_the_last_run_is_not_missed(
    executor: Executor, content: str
) -> None:
    reading = executor.read()
    runs = [next(reading) for _ in range(RUNS)]
    os.kill(processes(executor)[0], signal.SIGKILL)
    assert digest([*runs, *reading]) == content


@EITHER_ENGINE
def test_a_killed_loader_is_replaced(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    reading = executor.read()
    first = [next(reading)]
    node, loader = processes(executor)
    os.kill(loader, signal.SIGKILL)
    assert digest([*first, *reading]) == content
    assert not caplog.records or max(r.levelno for r in caplog.records) < 30
    assert executor.metrics().failures <= 1
    until(lambda: len(processes(executor)) == 2)
    assert processes(executor)[0] == node
    assert loader not in processes(executor)


@EITHER_ENGINE
def test_what_a_killed_task_has_mapped_is_free_again(
    executor: Executor, content: str
) -> None:
    task = executor.start_task(runs=7, stdin=subprocess.PIPE)
    with task:
        assert task.stdout is not None
        assert task.stdout.readline() == "7\n"
        nothing = replace(executor.config, max_bytes=0)
        assert digest(executor.read(1, config=nothing)) == content
        # What the other task maps, and nothing else: loaders unmap a little later.
        until(lambda: executor.metrics().held_bytes == memfd_bytes(executor, task.pid))
        assert executor.metrics().held_bytes > 0
        task.kill()
    until(lambda: executor.metrics().held_bytes == 0)
    assert memfd_bytes(executor) == 0


@EITHER_ENGINE
def test_memory_counts_for_as_long_as_a_batch_is_referred_to(
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
        rest = Consumer(whole.stretches[0].ledger.topic)
        for number, (scan, end) in enumerate(batches_of(whole, 2), start=1):
            stream = Plan("run/query/stream", (rest,), batch=2 * number)
            batch = replace(rest, end=end)
            yield from executor.read(number, scan, consumer=batch, plans=(stream,))
            rest = replace(rest, start=end)

    assert digest(read()) == content
    until(lambda: executor.metrics().gets == 6)  # the last load says that it has ended
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
        out, said = task.communicate()
        assert (out.strip(), said) == (content, "")
    assert 0 < peak_bytes <= executor.config.max_bytes
    assert peak_bytes <= executor.metrics().peak_bytes <= executor.config.max_bytes


def test_without_room_runs_come_through_pipes(executor: Executor, content: str) -> None:
    nothing = replace(executor.config, max_bytes=0)
    assert digest(executor.read(config=nothing)) == content
    metrics = executor.metrics()
    assert metrics.streamed == metrics.requests == RUNS
    assert metrics.peak_bytes == 0


def test_a_hung_loader_is_given_up(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(executor.config, request_timeout_s=1)
    reading = executor.read(config=config)
    first = [next(reading)]
    loader = processes(executor)[1]
    os.kill(loader, signal.SIGSTOP)
    assert digest([*first, *reading]) == content
    assert "loader of this run died" in only_warning(caplog)
    assert digest(executor.read(1, config=config)) == content
    assert loader not in processes(executor)


def test_a_hung_node_is_done_without(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    digest(executor.read())
    reading = executor.read(1, config=replace(executor.config, request_timeout_s=1))
    first = [next(reading)]
    node = processes(executor)[0]
    os.kill(node, signal.SIGSTOP)
    try:
        assert digest([*first, *reading]) == content
    finally:
        os.kill(node, signal.SIGCONT)
    assert "timed out" in only_warning(caplog)


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
    assert executor.metrics().failures >= 2  # what is loaded ahead fails, too


@EITHER_ENGINE
def test_settings_of_a_later_stage_reach_the_node(executor: Executor) -> None:
    digest(executor.read(1))
    digest(
        executor.read(2, config=replace(executor.config, loaders=3, max_bytes=300_000))
    )
    until(lambda: len(processes(executor)) == 4)
    assert 0 < executor.metrics().held_bytes <= 300_000
    digest(executor.read(1))
    assert len(processes(executor)) == 4
    digest(executor.read(3))
    until(lambda: len(processes(executor)) == 2)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            replace(CONFIG, ttl_create_s=1, ttl_after_read_s=1),
            id="its time is over",
        ),
        pytest.param(replace(CONFIG, max_life_s=1), id="its life has ended"),
    ],
)
def test_memory_is_free_within_two_seconds_though_nobody_asks(
    executor: Executor, config: CacheConfig
) -> None:
    """No message is sent meanwhile: what is looked at are the node's descriptors."""
    begin_s = time.monotonic()
    reading = executor.read(config=config)
    next(reading)
    reading.close()
    until(lambda: memfd_bytes(executor) == 0, deadline_s=1 + 2)
    assert time.monotonic() - begin_s >= 1, "it was not the time that ended it"
    metrics = executor.metrics()
    assert metrics.evicted_by_ttl == metrics.inserts > 0


def test_much_that_is_overdue_is_free_as_soon(
    executor: Executor, tmp_path: Path
) -> None:
    """It takes nine passes, which follow one another at once."""
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


def test_a_mapped_run_outlives_its_time_where_it_is_mapped(
    executor: Executor, content: str
) -> None:
    short = replace(executor.config, ttl_create_s=1, ttl_after_read_s=1, max_life_s=1)
    reading = executor.read(config=short)
    runs = list(reading)
    node = processes(executor)[0]
    until(lambda: memfd_bytes_of([node]) == 0, deadline_s=1 + 2)
    assert digest(runs) == content


def test_a_node_ends_with_its_directory(executor: Executor) -> None:
    digest(executor.read())
    shutil.rmtree(executor.directory)
    until(lambda: not processes(executor), deadline_s=3)


def test_a_node_ends_with_its_jvm(executor: Executor) -> None:
    """The JVM is what is called `java` above the task."""
    code = """
import pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text("java")
subprocess.run(sys.argv[1:], check=True)
sys.stdin.read()
"""
    task = executor.start_task()
    command = task.args
    task.communicate()
    os.kill(processes(executor)[0], signal.SIGKILL)
    until(lambda: not processes(executor))
    assert isinstance(command, list)
    jvm = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with jvm:
        assert jvm.stdout is not None
        assert jvm.stdout.readline()
        assert len(processes(executor)) == 2
        jvm.kill()
    until(lambda: not processes(executor), deadline_s=3)


def test_a_node_started_by_a_worker_with_little_memory_serves(
    executor: Executor, content: str
) -> None:
    """Its limit is the node's too; shared memory that is not mapped is beyond it."""
    limit = 2 << 30
    task = executor.start_task(
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    )
    out, said = task.communicate()
    assert (out.strip(), said) == (content, "")
    assert executor.metrics().requests == RUNS


def test_a_node_is_reached_however_long_its_path_is(
    executor: Executor, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = executor.directory / ("long" * 40)
    directory.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{directory},/nowhere")
    executor = replace(executor, directory=directory)
    assert digest(executor.read()) == content
    assert executor.metrics().requests == RUNS


@pytest.mark.parametrize(
    "make_useless",
    [
        pytest.param(lambda path: path.rmdir(), id="it is not there"),
        pytest.param(lambda path: (path / "sparkcache").touch(), id="a file is there"),
        pytest.param(
            lambda path: (path / "sparkcache").mkdir(mode=0o755), id="open to others"
        ),
        pytest.param(
            lambda path: (path / "sparkcache/lock").mkdir(mode=0o700, parents=True),
            id="the lock is a directory",
        ),
    ],
)
def test_a_useless_directory_does_no_harm(
    executor: Executor,
    content: str,
    caplog: pytest.LogCaptureFixture,
    make_useless: object,
) -> None:
    assert callable(make_useless)
    make_useless(executor.directory)
    if (executor.directory / "sparkcache/lock").is_dir():
        (executor.directory / "sparkcache").chmod(0o700)
    assert digest(executor.read()) == content
    assert "reading without the cache" in only_warning(caplog)


def test_why_a_node_does_not_start_is_told(
    executor: Executor,
    content: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.syspath_prepend(tmp_path)
    for stage in range(2):
        caplog.clear()
        assert digest(executor.read(stage)) == content
        assert only_warning(caplog).endswith("ImportError: broken on purpose")


def test_a_killed_starter_does_not_let_a_second_node_in(executor: Executor) -> None:
    """The lock is held by what starts the node, not only by the task that wants it."""
    tasks = [executor.start_task() for _ in range(2)]
    until(lambda: bool(processes(executor)))
    tasks[0].kill()
    for task in tasks:
        task.communicate()
    executor.start_task().communicate()
    assert len(processes(executor)) == 2


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """Stop processes, so that they are all seen at one moment."""

    def signal_all(number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def is_still(pid: int) -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rpartition(")")[2].split()[0] in "TZX"

    signal_all(signal.SIGSTOP)
    try:
        until(lambda: all(map(is_still, pids)))
        yield
    finally:
        signal_all(signal.SIGCONT)


def memfd_bytes(executor: Executor, *tasks: int) -> int:
    """Shared memory of the node, its loaders and these tasks, each piece once."""
    return memfd_bytes_of([*processes(executor), *tasks])


def memfd_bytes_of(pids: list[int]) -> int:
    sizes = {}
    for pid in pids:
        try:
            fds = list(Path(f"/proc/{pid}/fd").iterdir())
        except (FileNotFoundError, PermissionError):
            continue
        for fd in fds:
            try:
                if os.readlink(fd).startswith("/memfd:sparkcache"):  # noqa: PTH115
                    status = fd.stat()
                    sizes[status.st_ino] = status.st_size
            except FileNotFoundError:
                continue
    return sum(sizes.values())


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
