"""A file of a table has the same home in a scan and in a batch of a stream."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sparkcache.homes import Cluster, Executor
from sparkcache.source.batch.jvm_partition import EXECUTORS, OPTION
from sparkcache.source.datasource import SparkCacheSource
from tests.unit.delta.streamed_table import batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.source.batch.scan_partition import ScanPartition
    from tests.unit.delta.lake import Lake
    from tests.unit.delta.streamed_table import Table

FILES = 30
FOUR = tuple(Executor(f"executor_host_{number}") for number in range(4))


def of_scan(lake: Lake, **options: str) -> dict[str, str]:
    base = {OPTION: "{}", "topic": "t", "connector": "delta"}
    source = SparkCacheSource({**base, **options, "path": str(lake.directory)})
    schema = source.schema()
    schema.fields[0].metadata = {EXECUTORS: msgspec.json.encode(Cluster(FOUR)).decode()}
    partitions: Any = source.reader(schema).partitions()
    return homes_of_files(each.partition for each in partitions)


def of_stream(table: Table, **options: str) -> dict[str, str]:
    reader = table.stream(maxRowsPerTrigger="50", **options)
    cluster = msgspec.to_builtins(Cluster(FOUR))
    offsets = batches(reader)
    assert len(offsets) > 3
    return homes_of_files(
        part.partition
        for start, end in pairwise(offsets)
        for part in reader.partitions(start, [cluster, end])
    )


def homes_of_files(partitions: Iterable[ScanPartition]) -> dict[str, str]:
    return {
        piece.ledger.object.uri: partition.home
        for partition in partitions
        for piece in partition.pieces
    }


@pytest.mark.parametrize("columns", ["id,items", "id", "items"])
def test_a_stream_and_a_scan_agree_on_homes(
    lake: Lake, table: Table, columns: str
) -> None:
    for _ in range(FILES):
        table.append(items=[1, 2])
    found = of_stream(table, columns=columns)
    assert len(found) == FILES
    assert set(found.values()) == {each.location for each in FOUR}
    assert found == of_scan(lake, columns=columns) == of_scan(lake)
