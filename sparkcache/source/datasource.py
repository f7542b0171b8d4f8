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
from sparkcache.fetch import Scan, Stretch
from sparkcache.source import settings
from sparkcache.source.options import ScanOptions
from sparkcache.source.partitions import partition, stretch, wanted
from sparkcache.source.rows import RowFilter
from sparkcache.source.topic_map import TopicMap
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparkcache.connector import Snapshot, Storage
    from sparkcache.consumers import Consumer
    from sparkcache.source.broadcast import BroadcastRef
    from sparkcache.source.partitions import Located, Piece


_FOLLOWING = 4  # partitions: about as many begin at once as an executor has cores


class SparkCacheSource(DataSource):
    """A topic in object storage, read through the executor's cache.

    Attributes:
        installed: The configuration that `sparkcache.install` ships along; None where
            Spark has found the source by itself.

    """

    installed: ClassVar[BroadcastRef[CacheConfig] | None] = None

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._scan = _pinned(ScanOptions.parse(dict(options)), self.installed)

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
    """Partition number `part` of a scan, of a topic as which `end` it has.

    `following` are the first pieces of the partitions of the topic that come after it.
    """

    def __init__(
        self,
        pieces: list[Piece],
        following: list[Piece],
        consumer: Consumer,
        scan: str,
        part: int,
        end: int,
    ) -> None:
        super().__init__(pieces)
        self.pieces = pieces
        self.following = following
        self.consumer = consumer
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
        self._storage: Storage | None = open_storage(scan.root, self._config, Traffic())
        connector = connectors.find(scan.connector)
        catalog = connector.catalog(self._storage, scan.given)
        names = catalog.select(scan.selection)
        scan.check_offsets(names)
        self._found = [(scan.consumer(name), catalog.snapshot(name)) for name in names]
        self._maps = {
            consumer.topic: TopicMap(snapshot.ledgers)
            for consumer, snapshot in self._found
        }

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_storage": None, "_found": []}

    def partitions(self) -> list[_Partition]:
        """Cut the topics; the versions of their objects are pinned."""
        connector = connectors.find(self._scan.connector)
        cut = partition(
            [self._extents(*found) for found in self._found],
            self._scan.min_partitions,
            self._config.partition_bytes,
            lambda extent: len(connector.runs(extent, self._config.run_bytes)),
        )
        scan_id = uuid.uuid4().hex
        partitions: list[_Partition] = []
        for (consumer, _), pieces in zip(self._found, cut, strict=True):
            last = pieces[-1][-1] if pieces else None
            end = last.at + last.extent.size_bytes if last else 0
            begins = [part[0] for part in pieces]
            for at, part in enumerate(pieces or [[]], start=1):
                following = begins[at : at + _FOLLOWING]
                number = len(partitions)
                partitions.append(
                    _Partition(part, following, consumer, scan_id, number, end)
                )
        return partitions

    def _extents(self, consumer: Consumer, snapshot: Snapshot) -> list[Located]:
        """Return the extents of a topic that a scan may want anything of."""
        scan = self._scan
        settings.report(snapshot.losses, consumer, fail=scan.fail_on_data_loss)
        extents = wanted(snapshot.ledgers, consumer)
        times_us = scan.start_us, scan.end_us
        if times_us == (None, None):
            return extents
        assert self._storage is not None, "this is where the reader was made"
        places = [(ledger, extent) for ledger, extent, _ in extents]
        connector = connectors.find(scan.connector)
        chosen = connector.prune(self._storage, places, times_us, scan.given)
        return extents[chosen.start : chosen.stop]

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
        consumer = partition.consumer

        def stretch_of(piece: Piece) -> Stretch | None:
            runs = connector.runs(piece.extent, config.run_bytes)
            return stretch(piece, runs, consumer)

        stretches = tuple(filter(None, map(stretch_of, partition.pieces)))
        following = enumerate(map(stretch_of, partition.following), partition.part + 1)
        scan = Scan(self._scan.root, config, stretches)
        of_node = replace(task.config, enabled=config.enabled)
        runs = read_scan(
            scan,
            reader=Reader(task.token, partition.scan, consumer, partition.end),
            epoch=task.epoch,
            settings=of_node,
            plans=task.plans,
            following=tuple((part, first) for part, first in following if first),
            group=connector.group(consumer.topic),
        )
        topic = self._maps[consumer.topic]
        resolver = connector.resolver(
            self._scan.decoding,
            self._scan.given,
            Neighbours(topic, scan, consumer, task, of_node),
        )
        rows = RowFilter(self._scan, consumer, self._columns)
        fail = self._scan.fail_on_data_loss
        for key, run in zip(scan.keys(), runs, strict=True):
            resolved = resolver.resolve(key, run)
            settings.report(resolved.losses, consumer, fail=fail)
            if resolved is not run:
                run.batches.clear()
            while resolved.batches:
                yield from rows.of(resolved.batches.pop(0))

    def _base(self) -> CacheConfig | None:
        return _value(self._installed)


def _pinned(
    scan: ScanOptions, installed: BroadcastRef[CacheConfig] | None
) -> ScanOptions:
    """Have a connector look up what a DataFrame shows from now on."""
    connector = connectors.find(scan.connector)
    config = CacheConfig.resolve(options=scan.given, base=_value(installed))
    storage = open_storage(scan.root, config, Traffic())
    given = connector.pin(storage, scan.selection, scan.given)
    return replace(scan, given=given, decoding=connector.decoding(given))


def _value(installed: BroadcastRef[CacheConfig] | None) -> CacheConfig | None:
    return None if installed is None else installed.value


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
    for named in to_arrow_schema(schema, timezone="UTC"):
        index = offered.get_field_index(named.name)
        if index < 0:
            raise ConfigError(
                f"schema: there is no column {named.name}; there are "
                f"{', '.join(offered.names)}"
            )
        if not named.equals(offered.field(index)):
            raise ConfigError(
                f"schema: column {named.name} is {offered.field(index).type}, "
                f"nullable; not {named.type}{'' if named.nullable else ' not null'}"
            )
    return schema.fieldNames()
