"""What a node records is what it was asked."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.demand import Consumer, Plan
from sparkcache.model import Position
from sparkcache.node.cache_settings import cache_settings
from sparkcache.node.messages import QueryProgress
from sparkcache.simulate import simulate
from sparkcache.trace import Begin, Trace, parse
from tests.unit.node.node_world import CONFIG, SIZE, STORED, TOPIC, World, plan

if TYPE_CHECKING:
    from pathlib import Path


def recorded(directory: Path) -> Trace:
    [path] = directory.iterdir()
    return parse(path.read_text().splitlines(), path.name)


def recording(directory: Path, **settings: Any) -> World:
    world = World(replace(CONFIG, trace=str(directory), **settings))
    world.loader()
    return world


def read_twice(world: World) -> None:
    both = plan("p", None, None)
    for stage in (0, 1):
        reader = world.of(0, 20, stage=stage, plans=(both,))
        world.read(reader)
        reader.finish()
    world.end_plans("p")
    world.service.stop()


def test_a_trace_shows_what_the_node_did(tmp_path: Path) -> None:
    world = recording(tmp_path)
    read_twice(world)
    trace = recorded(tmp_path)
    metrics = world.service.metrics()
    assert len(trace.takes()) == metrics.requests == 40
    assert {size.stored_bytes for size in trace.runs.values()} == {STORED}
    assert {trace.size_bytes(key) for key in trace.runs} == {SIZE}
    outcome = simulate(trace, cache_settings(world.config, 1000))
    assert outcome.loads == metrics.inserts == 20
    assert outcome.gets == metrics.gets == 1


def test_a_trace_shows_what_another_size_would_do(tmp_path: Path) -> None:
    world = recording(tmp_path)
    read_twice(world)
    smaller = replace(world.config, max_bytes=10 * SIZE)
    outcome = simulate(recorded(tmp_path), cache_settings(smaller, 1000))
    assert outcome.loads == 20 + 10


def test_a_trace_has_each_batch_of_a_stream(tmp_path: Path) -> None:
    """In one that knew the first alone, the second would be expected no more."""
    world = recording(tmp_path)

    def left(batch: int, first: int) -> Plan:
        orders = Consumer(TOPIC, Position(0, first))
        return Plan("run/s", (orders, Consumer("s3://bucket#bills")), batch)

    for stage, first in enumerate((0, 10)):
        plans = (left(2 * stage + 2, first),) * 2
        reader = world.of(first, first + 10, stage=stage, plans=plans)
        world.read(reader)
        reader.finish()
    for _ in range(2):
        world.request(QueryProgress("run", {"bills": Position(0, 30)}))
    world.end_plans("run")
    world.service.stop()
    begun = [it.plan for _, it in recorded(tmp_path).events if isinstance(it, Begin)]
    assert [(plan.batch, *(it.start for it in plan.consumers)) for plan in begun] == [
        (2, Position(0, 0), None),
        (4, Position(0, 10), None),
        (5, Position(0, 10), Position(0, 30)),
    ]


def test_what_was_recorded_is_in_the_file_at_each_tick(tmp_path: Path) -> None:
    world = recording(tmp_path)
    reader = world.of(0, 5)
    world.read(reader)
    world.advance(0.5)
    assert len(recorded(tmp_path).takes()) == 5
    reader.leave()
    world.service.stop()


def test_recording_begins_and_ends_with_the_setting(tmp_path: Path) -> None:
    world = World()
    world.loader()
    early = world.of(0, 5)
    world.read(early)
    world.configure(replace(CONFIG, trace=str(tmp_path)))
    early.leave()
    while_it_records = world.of(5, 9)
    world.read(while_it_records)
    world.configure(CONFIG)
    while_it_records.leave()
    world.read(world.of(9, 20))
    assert [key.run.first for key in recorded(tmp_path).takes()] == [5, 6, 7, 8]


def test_a_directory_that_cannot_be_written_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    world = recording(tmp_path / "file" / "traces")
    with caplog.at_level(logging.WARNING):
        read_twice(world)
    assert world.service.metrics().requests == 40


def test_a_disk_that_is_full_harms_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    world = recording(tmp_path)
    full = open("/dev/full", "wb", buffering=0)  # noqa: SIM115, PTH123 - it is closed
    recorder = world.service._recorder
    assert recorder._file is not None
    recorder._file.close()
    monkeypatch.setattr(recorder, "_file", full)
    with caplog.at_level(logging.WARNING):
        read_twice(world)
    assert "No space left on device" in caplog.text
    assert full.closed
    assert world.service.metrics().requests == 40
