"""Columns that are added, gone or called otherwise under a stream of a table."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from sparkcache.errors import SourceError
from sparkcache_delta.evolution import changed, lost
from tests.unit.delta.streamed_table import ALL, Table, batches

if TYPE_CHECKING:
    from tests.unit.delta.lake import Lake


def test_columns_that_are_added_later(table: Table) -> None:
    table.append()
    reader = table.stream()
    chosen = table.stream(columns="id")
    _, end = batches(reader)
    table.append(shop="eu")
    with pytest.raises(
        SourceError, match=r"different columns in version 1: shop; load"
    ):
        reader.latestOffset(end, ALL)
    for fits in (chosen, table.stream()):
        _, last = batches(fits, end)
        assert table.ids(fits, end, last) == list(range(10, 20))


def test_columns_that_were_dropped(table: Table) -> None:
    table.append(shop="eu")
    start = table.stream(startingVersion="0").initialOffset()
    rows = pa.table({"id": range(5)})
    write_deltalake(table.path, rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(
        SourceError, match=r"different columns in version 0: shop; set sta"
    ):
        table.stream(skipChangeCommits="true").latestOffset(start, ALL)
    kept = table.stream(skipChangeCommits="true", columns="id")
    *_, last = batches(kept, start)
    assert table.ids(kept, start, last) == list(range(10))


class MappedTable:
    """A table of one row in each file, whose columns have other names in files."""

    def __init__(self, lake: Lake) -> None:
        self._path = lake.directory / "t"
        self._commits = count()
        (self._path / "_delta_log").mkdir(parents=True)

    def commit(self, names: dict[str, str], *, days: str = "", takes: str = "") -> None:
        """Commit columns by their names in files, files of days, and removals."""
        actions: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
            {"metaData": self._columns(names)},
            *({"add": self._file(day)} for day in days),
            *({"remove": {"path": day, "dataChange": False}} for day in takes),
        ]
        log = self._path / "_delta_log" / f"{next(self._commits):020}.json"
        log.write_text("\n".join(map(json.dumps, actions)))

    def _columns(self, names: dict[str, str]) -> dict[str, Any]:
        fields = [
            {
                "name": name,
                "type": "string",
                "nullable": True,
                "metadata": {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": stored,
                },
            }
            for number, (stored, name) in enumerate(names.items(), start=1)
        ]
        return {
            "id": "one",
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [names["c1"]],
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "configuration": {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": "9",
            },
        }

    def _file(self, day: str) -> dict[str, Any]:
        row = {"c2": f"b{day}", "c3": f"c{day}"}
        pq.write_table(pa.table({name: [row[name]] for name in row}), self._path / day)
        none = dict.fromkeys(row, 0)
        stats = {"numRecords": 1, "minValues": row, "maxValues": row, "nullCount": none}
        return {
            "path": day,
            "partitionValues": {"c1": day},
            "size": (self._path / day).stat().st_size,
            "modificationTime": int(day),
            "dataChange": True,
            "stats": json.dumps(stats),
        }


def test_columns_that_were_renamed(table: Table, lake: Lake) -> None:
    """What was known of a file by its columns' old names, is known by the new ones."""
    mapped = MappedTable(lake)
    mapped.commit({"c1": "day", "c2": "b", "c3": "c"}, days="12")
    reader = table.stream(maxRowsPerTrigger="1")
    (start, first, *_) = batches(reader)
    mapped.commit({"c1": "date", "c2": "c", "c3": "b"}, days="3")
    mapped.commit({"c1": "date", "c2": "c", "c3": "b"}, takes="3")
    with pytest.raises(SourceError, match="columns in version 1: b, c, date; load"):
        reader.latestOffset(first, ALL)
    row = {"c": "b2", "b": "c2", "date": "2"}
    later = {"c": "b3", "b": "c3", "date": "3"}
    for where, expected in (
        ("", [row, later]),
        ("date = '3'", [later]),
        ("b >= 'c2' and c < 'b3'", [row]),
        ("date != '1'", [row, later]),
    ):
        again = table.stream(where=where)
        (_, end) = batches(again, first)
        assert table.rows(again, first, end) == expected
    assert start != first


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("earlier", "now", "is_lost"),
    [
        (pa.int32(), pa.int64(), False),
        (pa.int64(), pa.int32(), True),
        (pa.int32(), pa.float64(), False),
        (pa.int64(), pa.float64(), True),
        (pa.int64(), pa.string(), True),
        (pa.float32(), pa.float64(), False),
        (pa.int32(), pa.decimal128(12, 2), False),
        (pa.int32(), pa.decimal128(11, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(7, 4), False),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), True),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.date32(), pa.timestamp("us", "UTC"), True),
        (pa.list_(pa.int16()), pa.list_(pa.int32()), False),
        (struct(a=pa.int8()), struct(a=pa.int8(), b=pa.int8()), False),
        (struct(a=pa.int8(), b=pa.int8()), struct(a=pa.int8()), True),
        (pa.map_(pa.int8(), pa.int8()), pa.map_(pa.int8(), pa.int16()), False),
        (pa.map_(pa.int16(), pa.int8()), pa.map_(pa.int8(), pa.int8()), True),
    ],
    ids=str,
)
def test_columns_whose_type_has_changed(
    earlier: pa.DataType, now: pa.DataType, is_lost: bool
) -> None:
    before, after = pa.schema([("a", earlier)]), pa.schema([("a", now)])
    assert lost(after, before, are_all=True) == ("a" if is_lost else "")
    assert changed(after, before, are_all=True) == "a"
    assert changed(after, after, are_all=True) == ""
