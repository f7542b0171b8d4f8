"""Runs for a reader in the JVM, which opens any number of them by their paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, Plan
from sparkcache.filters import Filter
from sparkcache.node.messages import (
    Clear,
    Finish,
    Outcome,
    RunAt,
    Served,
    ServedAt,
    Take,
)
from sparkcache.node.opening import PathPeer
from tests.unit.node.node_world import (
    CONFIG,
    SIZE,
    TOPIC,
    FakePeer,
    Reader,
    World,
    run_slice,
)

NO_AHEAD = replace(CONFIG, read_ahead_bytes=0)


def held(count: int, config: CacheConfig = NO_AHEAD) -> World:
    """A node that holds the first runs."""
    world = World(config)
    world.loader()
    reader = world.of(0, count)
    world.read(reader)
    reader.finish()
    return world


def in_the_jvm(
    world: World, start: int, stop: int, **more: Any
) -> tuple[Reader, FakePeer]:
    reader, peer = world.of(start, stop, **more), FakePeer()
    reader.session.peer = PathPeer(peer)
    return reader, peer


def served(peer: FakePeer) -> tuple[RunAt, ...]:
    """The runs of the only answer."""
    ((message, fd),) = peer.sent
    assert fd is None
    assert isinstance(message, ServedAt)
    return message.runs


def test_held_runs_are_sent_together() -> None:
    world = held(9)
    reader, peer = in_the_jvm(world, 2, 9)
    reader.send_node(Take(0, 2))
    runs = served(peer)
    assert [(run.run_slice, run.index) for run in runs] == [(0, n) for n in range(2, 9)]
    assert {run.size_bytes for run in runs} == {SIZE}
    assert len({run.fd for run in runs} & world.open_fds) == 7
    metrics = world.service.metrics()
    assert (metrics.hits, metrics.pinned_runs) == (7, 7)
    world.service.check()
    reader.leave()
    assert world.service.metrics().pinned_runs == 0


def test_a_reader_knows_how_runs_were_found() -> None:
    world = held(2)
    reader, peer = in_the_jvm(world, 0, 4)
    other, others_peer = in_the_jvm(world, 0, 4)
    outcomes: list[tuple[Outcome, ...]] = []
    for number in (0, 2):
        reader.send_node(Take(0, number))
        other.send_node(Take(0, number))
        world.settle()
        found = [of.sent.pop(0)[0] for of in (peer, others_peer)]
        outcomes.append(
            tuple(each.outcome for each in found if isinstance(each, ServedAt))
        )
    assert outcomes == [(Outcome.HIT, Outcome.HIT), (Outcome.MISS, Outcome.WAIT)]
    reader.leave()
    other.leave()


def test_stored_bytes_are_those_of_the_first_reader() -> None:
    world = World(CONFIG)
    world.loader()
    charged = []
    for _ in range(2):
        reader, peer = in_the_jvm(world, 0, 9)
        while reader.wants_more:
            at = reader.session.cursor[1] + 1
            if at == 9:
                break
            reader.send_node(Take(0, at))
            world.settle()
        replies = [m for m, _ in peer.sent if isinstance(m, ServedAt)]
        charged.append(sum(reply.stored_bytes for reply in replies))
        reader.leave()
    part = run_slice(0, 0, 9)
    stored_bytes = sum(map(part.stored_bytes, range(9)))
    assert charged == [stored_bytes, 0]


def test_a_reader_knows_how_many_reads_are_planned() -> None:
    world = World(NO_AHEAD)
    world.loader()
    plans = (Plan("nightly", (Consumer(TOPIC),) * 3),)
    found = []
    for stage in range(4):
        reader, peer = in_the_jvm(world, 0, 1, stage=stage, plans=plans)
        reader.send_node(Take(0, 0))
        world.settle()
        reader.send_node(Finish(((0, 0),), ((0, 0),)))
        ((message, _),) = peer.sent
        assert isinstance(message, ServedAt)
        found.append(message.expected_reads)
        reader.leave()
    assert found == [3, 2, 1, 0]


def test_a_run_that_is_not_held_ends_them() -> None:
    world = held(3)
    reader, peer = in_the_jvm(world, 0, 9)
    reader.send_node(Take(0, 0))
    assert [run.index for run in served(peer)] == [0, 1, 2]
    peer.sent.clear()
    reader.send_node(Take(0, 3, ((0, 0), (0, 1), (0, 2)), ((0, 0), (0, 1))))
    world.settle()
    assert [run.index for run in served(peer)] == [3]
    assert world.service.metrics().pinned_runs == 2
    reader.leave()


@pytest.mark.parametrize(("max_runs", "expected"), [(64 * 2, 2), (64 * 5, 5), (8, 1)])
def test_together_they_are_a_small_share_of_the_memory(
    max_runs: int, expected: int
) -> None:
    world = held(8, replace(NO_AHEAD, max_bytes=max_runs * SIZE))
    reader, peer = in_the_jvm(world, 0, 8)
    reader.send_node(Take(0, 0))
    assert len(served(peer)) == expected
    reader.leave()


def test_a_task_in_python_gets_one_at_a_time() -> None:
    world = held(3)
    reader = world.of(0, 3)
    assert reader.ask() == Served(SIZE)
    assert world.service.metrics().pinned_runs == 1
    reader.leave()


def entries(number: int) -> tuple[int, int]:
    """First and last entry of a run."""
    (run,) = run_slice(0, number, number + 1).runs[number : number + 1]
    return run.first, run.last


def test_held_runs_that_cannot_match_are_not_mapped() -> None:
    world = held(9)
    wanted = Filter("entry", "in", (entries(4)[0], entries(6)[1]))
    reader, peer = in_the_jvm(world, 0, 9, filters=(wanted,))
    reader.send_node(Take(0, 0))
    runs = served(peer)
    assert [run.index for run in runs] == list(range(9))
    assert [run.index for run in runs if run.matches] == [4, 6]
    assert [run.index for run in runs if run.fd >= 0] == [4, 6]
    rows = entries(0)[1] - entries(0)[0] + 1
    assert {run.rows for run in runs if not run.matches} == {rows}
    metrics = world.service.metrics()
    assert (metrics.hits, metrics.pinned_runs) == (9, 2)
    reader.leave()
    assert world.service.metrics().pinned_runs == 0
    world.service.check()


def test_a_run_that_is_loaded_need_not_match() -> None:
    world = World(NO_AHEAD)
    world.loader()
    reader, peer = in_the_jvm(world, 0, 9, filters=(Filter("entry", "<", (0,)),))
    reader.send_node(Take(0, 0))
    world.settle()
    (run,) = served(peer)
    assert (run.index, run.fd, run.matches) == (0, -1, False)
    assert world.service.metrics().pinned_runs == 0
    reader.leave()
    world.service.check()


def test_for_the_number_of_rows_nothing_is_mapped() -> None:
    world = held(9, replace(NO_AHEAD, max_bytes=64 * SIZE))  # mapped, one at a time
    reader, peer = in_the_jvm(world, 0, 9, rows_only=True)
    reader.send_node(Take(0, 0))
    runs = served(peer)
    assert len(runs) == 9
    assert all(run.matches and run.fd == -1 for run in runs)
    assert sum(run.rows for run in runs) == entries(8)[1] - entries(0)[0] + 1
    reader.send_node(Finish(tuple((0, number) for number in range(9))))
    assert world.service.metrics().pinned_runs == 0
    world.service.check()


def test_statistics_go_with_their_runs() -> None:
    world = held(9)
    world.request(Clear())
    world.service.check()
    reader, peer = in_the_jvm(world, 0, 9, rows_only=True)
    reader.send_node(Take(0, 0))
    world.settle()
    assert [run.index for run in served(peer)] == [0]
    reader.leave()
