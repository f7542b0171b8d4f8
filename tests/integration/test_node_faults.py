"""Nodes and loaders that are killed, hang or do not start are not missed."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.homes import Place
from sparkcache.model import Extent, ReadToken, Run
from sparkcache.node.channel import BrokenChannelError, Channel
from sparkcache.node.launch import suspect, suspected
from sparkcache.node.messages import PROTOCOL_VERSION, PackedOpen, PackedSlice, ToTask
from tests.integration.executor import DEADLINE_S, TOPIC, Executor, digest, until
from tests.integration.nodes import (
    EITHER_ENGINE,
    RUNS,
    only_warning,
    processes,
    stored_bytes,
)


@EITHER_ENGINE
def test_a_killed_node_is_not_missed(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    reading = executor.read()
    first = [next(reading), next(reading)]
    old = processes(executor)
    os.kill(old[0], signal.SIGKILL)
    assert digest([*first, *reading]) == content
    assert "continuing without the cache" in only_warning(caplog)
    until(lambda: not set(old) & set(processes(executor)))
    assert digest(executor.read(1)) == content
    assert len(processes(executor)) == 2
    assert executor.metrics().requests > 0


@EITHER_ENGINE
def test_mapped_runs_outlive_a_node_that_is_terminated(
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


def test_a_hung_loader_is_given_up(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(executor.config, request_timeout_s=3)
    reading = executor.read(config=config)
    first = [next(reading)]
    loader = processes(executor)[1]
    os.kill(loader, signal.SIGSTOP)
    assert digest([*first, *reading]) == content
    assert "loader of the requested run died" in only_warning(caplog)
    assert digest(executor.read(1, config=config)) == content
    assert loader not in processes(executor)


def test_tasks_do_without_a_hung_node(
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


def test_a_hung_node_is_ended_by_a_later_task(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(executor.config, request_timeout_s=1)
    digest(executor.read())
    hung = processes(executor)
    os.kill(hung[0], signal.SIGSTOP)
    assert digest(executor.read(1, config=config)) == content
    assert "timed out" in only_warning(caplog)
    caplog.clear()
    begun_s = time.monotonic()
    assert digest(executor.read(2, config=config)) == content
    assert f"ending the node {hung[0]}" in only_warning(caplog)
    assert executor.metrics().requests == RUNS
    until(lambda: not set(hung) & set(processes(executor)))
    assert len(processes(executor)) == 2
    assert time.monotonic() - begun_s < 10


def test_a_node_that_was_silent_and_answers_again_is_kept(
    executor: Executor, content: str
) -> None:
    digest(executor.read())
    before = processes(executor)
    os.kill(before[0], signal.SIGSTOP)
    config = replace(executor.config, request_timeout_s=0.5)
    assert digest(executor.read(1, config=config)) == content
    os.kill(before[0], signal.SIGCONT)
    requests = executor.metrics().requests
    assert digest(executor.read(2)) == content
    assert processes(executor) == before
    assert executor.metrics().requests >= requests + RUNS


def test_a_node_that_accepts_no_connection_gets_no_second_one_beside_it(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(executor.config, request_timeout_s=0.5)
    executor.address.prepare()
    with executor.address.listen() as listener, ExitStack() as stack:
        listener.listen(0)
        with suppress(TimeoutError):
            while True:
                stack.enter_context(executor.address.connect(0.1))
        assert digest(executor.read(config=config)) == content
        assert "the node is too busy" in only_warning(caplog)
        assert processes(executor) == []
        caplog.clear()
        begun_s = time.monotonic()
        assert digest(executor.read(1, config=config)) == content
        assert "too busy" in only_warning(caplog)
        assert "next attempt in" in only_warning(caplog)
        assert time.monotonic() - begun_s < 5


def test_a_suspected_node_that_leaves_by_itself_is_not_killed(
    executor: Executor, content: str
) -> None:
    """Its pid, here that of this process, may be another's by then."""
    executor.address.prepare()
    with executor.address.listen() as listener:
        leaving = threading.Thread(target=close_connections, args=[listener])
        leaving.start()
        suspect(os.getpid())
        try:
            assert digest(executor.read()) == content
        finally:
            suspected.discard(os.getpid())
            leaving.join()
    assert executor.metrics().requests == RUNS


def close_connections(listener: socket.socket) -> None:
    for _ in range(3):  # of the task, of the task that holds the lock, of its question
        listener.accept()[0].close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_node_whose_socket_is_no_longer_its_own_ends(
    executor: Executor, is_replaced: bool
) -> None:
    digest(executor.read())
    path = executor.address.directory / "socket"
    path.unlink()
    if is_replaced:
        path.touch()
    until(lambda: not processes(executor))
    assert path.exists() == is_replaced


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
def test_an_unusable_directory_does_no_harm(
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


def test_the_reason_why_a_node_does_not_start_is_logged(
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


def test_a_request_for_a_missing_ledger_ends_the_connection(
    executor: Executor, content: str
) -> None:
    assert digest(executor.read()) == content
    part = PackedSlice(1, Extent(0, 9, 0, 10), (Run(0, 9),), 0, 1, 0)
    reader = ReaderIdentity(ReadToken(1, 0), "scan", Consumer(TOPIC), 0)
    said = PackedOpen(
        PROTOCOL_VERSION,
        "file:///nowhere",
        executor.config.storage,
        executor.config.scan,
        (),
        (part,),
        reader,
        1,
        executor.config.node,
        (),
        (),
        "",
        0,
        Place.ANYWHERE,
    )
    sock = executor.address.connect(DEADLINE_S)
    with closing(Channel[ToTask](sock, ToTask)) as channel:
        channel.send(said)
        with pytest.raises(BrokenChannelError, match="the peer is gone"):
            channel.receive()
    loads = executor.metrics().loads
    assert digest(executor.read(1)) == content
    assert executor.metrics().loads == loads


def test_what_a_killed_loader_has_fetched_is_counted(
    executor: Executor, content: str
) -> None:
    """The bytes arrive once more, so that nothing is saved by the cache."""
    reading = executor.read()
    first = [next(reading)]
    loader = processes(executor)[1]
    until(lambda: executor.metrics().held_bytes > 0)
    os.kill(loader, signal.SIGKILL)
    assert digest([*first, *reading]) == content
    until(lambda: loader not in processes(executor))
    until(lambda: executor.metrics().gets > 6)
    assert executor.metrics().received_bytes > stored_bytes(executor)
