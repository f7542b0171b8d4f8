"""What the planner tells a reader in the JVM: which partitions it may read, and why."""

from __future__ import annotations

import json
import pickle
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkcache.filters import Filter
from sparkcache.node.messages import OpenPartition
from sparkcache.node.opening import opened
from sparkcache.source.batch.jvm_partition import (
    FILTERS,
    OPTION,
    JvmPartition,
    open_in_python,
)
from sparkcache.source.batch.packing import decompressed
from sparkcache.source.datasource import SparkCacheSource
from tests.unit.delta.vector_table import VectorTable
from tests.unit.source.stream_world import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sparkcache.model import Run
    from tests.unit.source.stream_world import World

PULSAR = {"topic": TOPIC, "runBytes": "1k", "minPartitions": "4"}


@pytest.fixture(scope="module", autouse=True)
def _threads_of_delta_rs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the permanent threads of delta-rs before tests check for leaks."""
    path = tmp_path_factory.mktemp("first") / "table"
    write_deltalake(path, pa.table({"id": [1]}))
    DeltaTable(path).history()


@pytest.fixture
def world(world: World) -> World:
    """A topic of two ledgers."""
    for ledger in (3, 5):
        world.offload(ledger, 20)
    return world


def planned(path: Path, *filters: Filter, **options: str) -> Any:
    source = SparkCacheSource({OPTION: "{}", **options, "path": str(path)})
    schema = source.schema()
    if filters:
        schema.fields[0].metadata = {FILTERS: msgspec.json.encode(filters).decode()}
    return source.reader(schema).partitions()


def runs_of(partitions: Sequence[JvmPartition]) -> list[tuple[int, Run]]:
    """Return the runs that the JVM reads, each with its ledger's id."""
    found = []
    for number, partition in enumerate(partitions):
        if partition.planned:
            opening = opened(OpenPartition(partition.planned, 1, number, {}))
            assert opening is not None
            for one in opening.scan.slices:
                runs = one.runs[one.start : one.stop]
                found += [(one.ledger.id, run) for run in runs]
    return found


def write_file(folder: Path, table: pa.Table) -> None:
    folder.mkdir()
    pq.write_table(table, folder / "a.parquet")


def about(partitions: Sequence[JvmPartition]) -> dict[str, Any]:
    """Return what is said of the whole scan, once."""
    first, *others = partitions
    assert not any(partition.scan for partition in others)
    found: dict[str, Any] = msgspec.json.decode(first.scan)
    return found


def test_a_topic_that_is_read_as_a_whole(world: World) -> None:
    partitions = planned(world.directory, **PULSAR)
    assert len(partitions) >= 4
    found = about(partitions)
    source = SparkCacheSource({**PULSAR, "path": str(world.directory)})
    assert found["reason"] == ""
    assert found["name"] == f"topic='{TOPIC}'"
    assert found["columns"] == len(source.schema())
    pieces = [piece for one in partitions for piece in one.partition.pieces]
    extents = {(piece.ledger, piece.extent) for piece in pieces}
    stored_bytes = sum(extent.size_bytes for _, extent in extents)
    assert 0 <= stored_bytes - found["bytes"] < len(partitions)
    for number, partition in enumerate(partitions):
        opening = opened(OpenPartition(partition.planned, 1, number, {}))
        assert opening is not None
        assert opening.reader.token.part == partition.partition.part
        bounds = struct.iter_unpack("<ii", partition.bounds)
        wanted = [(one.start, one.stop) for one in opening.scan.slices]
        assert list(bounds) == wanted
        assert all(start < stop for start, stop in wanted)
        assert (opening.following == ()) is (not partition.partition.following)


def test_in_python_a_partition_is_what_it_was(world: World) -> None:
    for partition in planned(world.directory, **PULSAR):
        opened_again = open_in_python(partition.partition.packed())
        opened_again.dictionary = partition.partition.dictionary
        assert opened_again.__dict__ == partition.partition.__dict__


def test_the_jvm_gets_the_four_parts_of_a_partition(world: World) -> None:
    partitions = planned(world.directory, **PULSAR)
    travelled = [pickle.loads(pickle.dumps(partition)) for partition in partitions]
    dictionary = travelled[0][5]
    assert not any(fields[5] for fields in travelled[1:])
    for partition, (body, is_planned, rows, *_) in zip(
        partitions, travelled, strict=True
    ):
        assert (is_planned, rows) == (bool(partition.planned), partition.rows)
        plain = decompressed(body, dictionary)
        sizes, parts = struct.unpack_from("<4i", plain), plain[16:]
        assert sum(sizes) == len(parts)
        wanted = (
            partition.planned,
            partition.bounds,
            partition.extents(),
            partition.partition.packed(),
        )
        assert b"".join(wanted) == parts
        assert sizes == tuple(map(len, wanted))


def test_partitions_with_an_edge_of_the_range_are_read_in_python(world: World) -> None:
    partitions = planned(
        world.directory, **PULSAR, startingOffsets="3:1", endingOffsets="5:19"
    )
    assert about(partitions)["reason"] == ""
    first, *inner, last = [bool(partition.planned) for partition in partitions]
    assert (first, last) == (False, False)
    assert inner
    assert all(inner)


def test_a_range_of_whole_runs_is_read_in_the_jvm(world: World) -> None:
    partitions = planned(world.directory, **PULSAR, startingOffsets="5:0")
    assert all(partition.planned for partition in partitions)


def test_filters_on_positions_leave_out_runs(world: World) -> None:
    every = runs_of(planned(world.directory, **PULSAR))
    filters = [
        Filter("__ledgerId", "in", (5, 7)),
        Filter("__entryId", ">=", (3,)),
        Filter("__entryId", "<", (9,)),
        Filter("value", "=", ("x",)),
    ]
    partitions = planned(world.directory, *filters, **PULSAR)
    assert about(partitions)["filtered"] == ["__entryId", "__ledgerId"]
    chosen = [
        (ledger, run)
        for ledger, run in every
        if ledger == 5 and run.last >= 3 and run.first < 9
    ]
    assert 0 < len(chosen) < len(every) / 2
    assert runs_of(partitions) == chosen
    none = planned(world.directory, Filter("__ledgerId", "=", (4,)), **PULSAR)
    assert runs_of(none) == []
    assert about(none)["bytes"] == 0


def test_rows_that_planning_knows(world: World, tmp_path: Path) -> None:
    of_topic = planned(world.directory, **PULSAR)
    assert {partition.rows for partition in of_topic} == {-1}
    path = tmp_path / "t"
    for first in (0, 10):
        table = pa.table({"n": range(first, first + 10)})
        write_deltalake(path, table, mode="append")
    options = {"connector": "delta", "minPartitions": "2"}
    assert [partition.rows for partition in planned(path, **options)] == [10, 10]
    (chosen,) = planned(path, Filter("n", "<", (3,)), **options)
    assert chosen.rows == 10
    where = planned(path, where="n < 3", **options)
    assert {partition.rows for partition in where} == {-1}
    left = VectorTable(tmp_path / "vectors").append([], [1, 2], [], [9])
    found = planned(tmp_path / "vectors", connector="delta")
    assert sum(partition.rows for partition in found) == len(left)


def test_the_name_says_the_range(world: World) -> None:
    def name(**options: str) -> str:
        return str(about(planned(world.directory, **PULSAR, **options))["name"])

    assert name() == f"topic='{TOPIC}'"
    limits = {"startingOffsets": "3:1", "endingOffsets": "5:19"}
    assert name(**limits) == f"topic='{TOPIC}', from 3:1, to 5:19"
    assert name(startingTime="5").endswith(", startingTime=5")


def test_filters_on_columns_leave_out_files(tmp_path: Path) -> None:
    for first in (0, 10):
        write_deltalake(
            tmp_path / "t", pa.table({"n": range(first, first + 10)}), mode="append"
        )
    options = {"connector": "delta"}
    every = planned(tmp_path / "t", **options)
    chosen = planned(tmp_path / "t", Filter("n", ">", (12,)), **options)
    assert about(chosen)["filtered"] == ["n"]
    assert about(chosen)["bytes"] < about(every)["bytes"]
    assert len(runs_of(every)) == 2
    assert len(runs_of(chosen)) == 1


def test_losses_that_planning_found_are_reported_in_python(world: World) -> None:
    world.data_of(5).unlink()
    partitions = planned(world.directory, **PULSAR, failOnDataLoss="false")
    first, *others = [bool(partition.planned) for partition in partitions]
    assert not first
    assert all(others)


@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        ({"spark.sparkcache.enabled": "false"}, {}, "enabled=false"),
        ({}, {"enabled": "false"}, "enabled=false"),
        ({"spark.sparkcache.engine": "ring"}, {}, "engine=ring"),
        ({}, {"startingTime": "0"}, "startingTime or endingTime selects rows"),
        (
            {},
            {"endingTime": "2030-01-01T00:00:00Z"},
            "startingTime or endingTime selects rows",
        ),
    ],
)
def test_why_a_topic_is_read_in_python(
    world: World, settings: dict[str, str], options: dict[str, str], reason: str
) -> None:
    partitions = planned(
        world.directory, **PULSAR, **{OPTION: json.dumps(settings)}, **options
    )
    assert about(partitions)["reason"] == reason
    assert not any(partition.planned for partition in partitions)


@pytest.mark.parametrize(
    ("type_", "is_read_in_jvm"),
    [
        (pa.int8(), True),
        (pa.float64(), True),
        (pa.decimal128(9, 2), True),
        (pa.string(), True),
        (pa.date32(), True),
        (pa.timestamp("us", "UTC"), True),
        (pa.list_(pa.map_(pa.string(), pa.struct([("a", pa.bool_())]))), True),
        (pa.struct([("metadata", pa.binary()), ("value", pa.binary())]), False),
    ],
    ids=str,
)
def test_types_that_lie_in_memory_as_spark_reads_them(
    tmp_path: Path, type_: pa.DataType, is_read_in_jvm: bool
) -> None:
    write_file(tmp_path / "t", pa.table({"a": pa.array([None], type_)}))
    partitions = planned(tmp_path, connector="delta", topic="t")
    reason = about(partitions)["reason"]
    assert reason == "" if is_read_in_jvm else reason.startswith("column a is of type ")
    assert bool(partitions[0].planned) is is_read_in_jvm


def test_where_selects_rows_in_python(tmp_path: Path) -> None:
    write_file(tmp_path / "t", pa.table({"a": [1, 2, 3]}))
    partitions = planned(tmp_path, connector="delta", topic="t", where="a < 3")
    assert about(partitions)["reason"] == "an option of the connector selects rows"
