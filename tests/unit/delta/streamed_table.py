"""A Delta table that a test writes, and streams that read it."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkcache import connector as connectors
from sparkcache.fetch.load import Load, begin, fetch
from sparkcache.source.batch.partitions import run_slice
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.streaming.change_reader import ChangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.source.batch.partitions import Piece
    from sparkcache.source.batch.scan_partition import ScanPartition
    from tests.unit.delta.lake import Lake

ALL = ReadAllAvailable()
ROWS = 10
CONNECTOR = connectors.find("delta")


class Table:
    """A table that a test writes, and streams that read it."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._numbers = count()
        self.path = lake.directory / "t"

    def append(self, **columns: Any) -> list[int]:
        """Commit a file of ten rows; return their ids."""
        ids = [next(self._numbers) for _ in range(ROWS)]
        constants = {name: [value] * ROWS for name, value in columns.items()}
        rows = pa.table({"id": ids, **constants})
        write_deltalake(self.path, rows, mode="append", schema_mode="merge")
        return ids

    def appends(self, times: int) -> list[int]:
        return [id_ for _ in range(times) for id_ in self.append()]

    @property
    def now(self) -> DeltaTable:
        return DeltaTable(self.path)

    @property
    def log(self) -> list[Any]:
        return sorted((self.path / "_delta_log").glob("*.json"))

    def stream(self, **options: str) -> ChangeReader:
        """Return a stream as Spark makes it, with the columns of the newest version."""
        defaults = {
            "path": str(self._lake.directory),
            "topic": "t",
            "connector": "delta",
            "pollInterval": "0s",
        }
        source = SparkCacheSource({**defaults, **options})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, ChangeReader)
        return reader

    def ids(self, reader: ChangeReader, start: Any, end: Any) -> list[int]:
        """Return the ids of a batch."""
        return [row["id"] for row in self.rows(reader, start, end)]

    def rows(self, reader: ChangeReader, start: Any, end: Any) -> list[dict[str, Any]]:
        """Return the rows of a batch, with its offsets converted to JSON and back."""
        start, end = json.loads(json.dumps([start, end]))
        return [
            row
            for part in reader.partitions(start, end)
            for piece in part.partition.pieces
            for row in self._rows(reader, part.partition, piece)
        ]

    def _rows(
        self, reader: ChangeReader, part: ScanPartition, piece: Piece
    ) -> Iterator[dict[str, Any]]:
        runs = tuple(CONNECTOR.runs(piece.extent, reader.config.run_bytes))
        wanted = run_slice(piece, runs, part.consumer)
        extent = piece.extent
        end = extent.offset + extent.size_bytes
        load = Load(piece.ledger, extent, runs, extent.offset, end)
        stream = begin(self._lake.storage(), load)
        for index, raw in enumerate(fetch(CONNECTOR, load, stream)):
            if wanted and wanted.start <= index < wanted.stop:
                for batch in CONNECTOR.decode(piece.ledger, raw, 1 << 20).batches:
                    yield from batch.to_pylist()


def batches(reader: ChangeReader, start: Any = None) -> list[Any]:
    """Return the offsets of all batches, until nothing is left to read."""
    offsets = [reader.initialOffset() if start is None else start]
    limit = reader.getDefaultReadLimit()
    while (end := reader.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(end)
    return offsets
