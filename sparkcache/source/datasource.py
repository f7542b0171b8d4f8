"""`spark.read.format("sparkcache")`: a batch source of Spark, in Python."""

from __future__ import annotations

import gc
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.consumers import Reader
from sparkcache.errors import ConfigError
from sparkcache.fetch import Scan
from sparkcache.source import settings
from sparkcache.source.options import ScanOptions
from sparkcache.source.partitions import Piece, partition, stretch
from sparkcache.source.rows import RowFilter
from sparkcache.source.topic_map import TopicMap
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparkcache.connector import Snapshot
    from sparkcache.source.broadcast import BroadcastRef


class SparkCacheSource(DataSource):
    """A topic in object storage, read through the executor's cache.

    Attributes:
        installed: The configuration that `sparkcache.install` ships along; None where
            Spark has found the source by itself.

    """

    installed: ClassVar[BroadcastRef[CacheConfig] | None] = None

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._scan = ScanOptions.parse(dict(options))

    @classmethod
    def name(cls) -> str:
        """The name for `format()`."""
        return "sparkcache"

    def schema(self) -> StructType:
        """The connector's columns."""
        return from_arrow_schema(_arrow_schema(self._scan))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in `schema`: all, or those the user named."""
        return _Reader(self._scan, schema, self.installed)


class _Partition(InputPartition):
    """Partition number `part` of a scan that ends at a place in its topic."""

    def __init__(self, pieces: list[Piece], scan: str, part: int, end: int) -> None:
        super().__init__(pieces)
        self.pieces = pieces
        self.scan = scan
        self.part = part
        self.end = end


class _Reader(DataSourceReader):
    def __init__(
        self,
        scan: ScanOptions,
        schema: StructType,
        installed: BroadcastRef[CacheConfig] | None,
    ) -> None:
        self._scan = scan
        self._columns = _checked_columns(scan, schema)
        self._installed = installed
        # Found here, since what a reader holds when it is made is what tasks get.
        self._config = CacheConfig.resolve(options=scan.given, base=self._base())
        storage = open_storage(scan.root, self._config, Traffic())
        connector = connectors.find(scan.connector)
        self._snapshot: Snapshot | None = connector.discover(
            storage, scan.topic, scan.given
        )
        self._topic = TopicMap(self._snapshot.ledgers)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_snapshot": None}

    def partitions(self) -> list[_Partition]:
        """Cut the topic; the versions of its objects are pinned."""
        scan, snapshot = self._scan, self._snapshot
        assert snapshot is not None, "partitions are planned where the reader was made"
        settings.report(snapshot.losses, scan)
        connector = connectors.find(scan.connector)
        pieces = partition(
            snapshot.ledgers,
            scan,
            self._config.partition_bytes,
            lambda extent: len(connector.runs(extent, self._config.run_bytes)),
        )
        scan_id = uuid.uuid4().hex
        ends = [piece.at + piece.extent.size_bytes for part in pieces for piece in part]
        return [
            _Partition(part, scan_id, number, max(ends, default=0))
            for number, part in enumerate(pieces or [[]])
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition."""
        from sparkcache.node.client import read_scan
        from sparkcache.source.neighbours import Neighbours

        assert isinstance(partition, _Partition)
        _freeze_once()
        context = TaskContext.get()
        assert context is not None
        task = settings.of_task(context, partition.part, self._base())
        config = CacheConfig.resolve(options=self._scan.given, base=task.config)
        connector = connectors.find(self._scan.connector)
        stretches = (
            stretch(piece, connector.runs(piece.extent, config.run_bytes), self._scan)
            for piece in partition.pieces
        )
        scan = Scan(self._scan.root, config, tuple(filter(None, stretches)))
        of_node = replace(task.config, enabled=config.enabled)
        consumer = self._scan.consumer()
        runs = read_scan(
            scan,
            reader=Reader(task.token, partition.scan, consumer, partition.end),
            epoch=task.epoch,
            settings=of_node,
            plans=task.plans,
        )
        resolver = connector.resolver(
            self._scan.decoding, Neighbours(self._topic, scan, consumer, task, of_node)
        )
        rows = RowFilter(self._scan, self._columns)
        for key, run in zip(scan.keys(), runs, strict=True):
            resolved = resolver.resolve(key, run)
            settings.report(resolved.losses, self._scan)
            if resolved is not run:
                run.batches.clear()
            while resolved.batches:
                yield from rows.of(resolved.batches.pop(0))

    def _base(self) -> CacheConfig | None:
        return None if self._installed is None else self._installed.value


_is_frozen = False


def _freeze_once() -> None:
    """Spare this worker's imports the collection that Spark makes after each task."""
    global _is_frozen
    if not _is_frozen:
        gc.freeze()
        _is_frozen = True


def _arrow_schema(scan: ScanOptions) -> pa.Schema:
    return connectors.find(scan.connector).schema(scan.decoding)


def _checked_columns(scan: ScanOptions, schema: StructType) -> list[str]:
    """Return the columns that a schema names; raises ConfigError for any other."""
    offered = _arrow_schema(scan)
    for wanted in to_arrow_schema(schema, timezone="UTC"):
        index = offered.get_field_index(wanted.name)
        if index < 0:
            raise ConfigError(
                f"schema: there is no column {wanted.name}; there are "
                f"{', '.join(offered.names)}"
            )
        if not wanted.equals(offered.field(index)):
            raise ConfigError(
                f"schema: column {wanted.name} is {offered.field(index).type}, "
                f"nullable; not {wanted.type}{'' if wanted.nullable else ' not null'}"
            )
    return schema.fieldNames()
