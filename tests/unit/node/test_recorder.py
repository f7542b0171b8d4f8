"""What a node records is what it was asked."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from node_world import CONFIG, SIZE, STORED, World, plan

from sparkcache.node.cache_settings import cache_settings
from sparkcache.simulate import simulate
from sparkcache.trace import Trace, parse

if TYPE_CHECKING:
    from pathlib import Path


def recorded(directory: Path) -> Trace:
    [path] = directory.iterdir()
    return parse(path.read_text().splitlines(), path.name)


def recording(directory: Path, **settings: int) -> World:
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


def test_a_trace_tells_what_the_node_did(tmp_path: Path) -> None:
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


def test_a_trace_tells_what_another_size_would_do(tmp_path: Path) -> None:
    world = recording(tmp_path)
    read_twice(world)
    smaller = replace(world.config, max_bytes=10 * SIZE)
    outcome = simulate(recorded(tmp_path), cache_settings(smaller, 1000))
    assert outcome.loads == 20 + 10


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
    world.service.configure(replace(CONFIG, trace=str(tmp_path)))
    early.leave()
    while_it_records = world.of(5, 9)
    world.read(while_it_records)
    world.service.configure(CONFIG)
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
