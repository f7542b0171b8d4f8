"""`format("sparkcache")`: Spark data source in Python, for batches and streams."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.connector import TableConnector
from sparkcache.errors import ConfigError
from sparkcache.homes import NO_CLUSTER
from sparkcache.progress import steps
from sparkcache.source.batch import jvm_partition
from sparkcache.source.batch.collection import no_collection
from sparkcache.source.batch.extent_index import ExtentIndex
from sparkcache.source.batch.packing import dictionary_of
from sparkcache.source.batch.scan_partition import (
    PackedPartition,
    ScanPartition,
    cut,
)
from sparkcache.source.batch.task_reader import TaskReader
from sparkcache.source.driver import planner_progress
from sparkcache.source.options import ScanOptions
from sparkcache.source.spark_schema import spark_schema
from sparkcache.source.spark_version import require_spark
from sparkcache.source.streaming.refused_stream import RefusedStream
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

    from sparkcache.filters import Filter
    from sparkcache.homes import Cluster
    from sparkcache.source.driver.broadcast import BroadcastRef


class SparkCacheSource(DataSource):
    """A topic in object storage, read through the executor's cache.

    Attributes:
        installed: The configuration that `sparkcache.install` ships; None if Spark
            found the source by itself.
        progress_directory: Directory of the socket that carries the progress of
            planning to the user's process; None if no terminal or notebook shows it.

    """

    installed: ClassVar[BroadcastRef[CacheConfig] | None] = None
    progress_directory: ClassVar[str | None] = None

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        given = {
            name: options[name] for name in options if name != jvm_partition.OPTION
        }
        settings = options.get(jvm_partition.OPTION)
        scan = ScanOptions.parse(given)
        # The process that plans a stream has no broadcast variables.
        self._base = None if self.installed is None else self.installed.value
        self._is_for_jvm = settings is not None
        conf = json.loads(settings or "{}")
        self._config = CacheConfig.resolve(options=scan.raw, conf=conf, base=self._base)
        self._scan = _pinned(scan, self._config)

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format()`."""
        return "sparkcache"

    def schema(self) -> StructType:
        """Return the connector's columns."""
        return _offered_schema(self._scan)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in `schema`: all, or those the user named."""
        self._scan.check_is_batch()
        columns = _checked_columns(self._scan, schema)
        with (
            planner_progress.reporting_through(self.progress_directory),
            no_collection(),
        ):
            if self._is_for_jvm:
                scan = jvm_partition.narrowed(self._scan, schema)
                reader = TaskReader(scan, columns, self.installed)
                return _ReaderForJvm(
                    scan,
                    self._config,
                    reader,
                    self._base,
                    jvm_partition.filters_of(schema),
                    jvm_partition.cluster_of(schema, self._config),
                )
            reader = TaskReader(self._scan, columns, self.installed)
            return _Reader(self._scan, self._config, reader)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of the columns in `schema`, batch after batch.

        The classes that it needs exist since Spark 4.2, so they are imported here.
        """
        try:
            require_spark("4.2", "a stream (readStream)")
            self._scan.check_is_stream()
            columns = _checked_columns(self._scan, schema)
        except ConfigError as error:
            return RefusedStream(error)
        from sparkcache.source.streaming.change_reader import ChangeReader
        from sparkcache.source.streaming.stream_reader import StreamReader

        reader = TaskReader(self._scan, columns, self.installed)
        if isinstance(connectors.find(self._scan.connector), TableConnector):
            return ChangeReader(self._scan, self._config, reader)
        return StreamReader(self._scan, self._config, reader)


class _Reader(DataSourceReader):
    def __init__(
        self,
        scan: ScanOptions,
        config: CacheConfig,
        task_reader: TaskReader,
        filters: tuple[Filter, ...] = (),
        cluster: Cluster = NO_CLUSTER,
    ) -> None:
        self._scan = scan
        self._config = config
        self._task_reader = task_reader
        # All is planned here, since tasks get the reader as it is constructed.
        storage = open_storage(scan.root, config.storage, Traffic())
        connector = connectors.find(scan.connector)
        catalog = connector.catalog(storage, scan.raw)
        names = catalog.select(scan.selection)
        scan.check_offsets(names)
        snapshots = [
            (scan.consumer(name), catalog.snapshot_for(name, filters))
            for name in steps(names, f"Planning {scan.root}", "topics", len(names))
        ]
        self._indexes = {
            consumer.topic: ExtentIndex.for_tasks(connector, snapshot)
            for consumer, snapshot in snapshots
        }
        self._partitions = list(
            cut(scan, config.scan, storage, snapshots, filters, cluster)
        )
        self._dictionary = dictionary_of(self._partitions[0].packed())
        for partition in self._partitions:
            partition.dictionary = self._dictionary

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_partitions": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions; the versions of their objects are pinned."""
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition."""
        if isinstance(partition, PackedPartition):
            partition = partition.unpacked(self._dictionary)
        assert isinstance(partition, ScanPartition)
        index = self._indexes[partition.consumer.topic]
        return self._task_reader.read(partition, index)


class _ReaderForJvm(_Reader):
    """A reader whose partitions are first opened in the JVM."""

    def __init__(
        self,
        scan: ScanOptions,
        config: CacheConfig,
        task_reader: TaskReader,
        installed: CacheConfig | None,
        filters: tuple[Filter, ...],
        cluster: Cluster,
    ) -> None:
        super().__init__(scan, config, task_reader, filters, cluster)
        self._installed = installed

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the topics into partitions, as the JVM opens them."""
        return jvm_partition.for_jvm(
            self._scan, self._config, self._installed, self._partitions
        )


def _pinned(scan: ScanOptions, config: CacheConfig) -> ScanOptions:
    """Return the scan with its schema and versions looked up by the connector, once."""
    connector = connectors.find(scan.connector)
    storage = open_storage(scan.root, config.storage, Traffic())
    raw = connector.pin(storage, scan.selection, scan.raw)
    return replace(scan, raw=raw, decoding=connector.decoding(raw))


def _offered_schema(scan: ScanOptions) -> StructType:
    """Return the columns that the connector offers for a scan."""
    return spark_schema(connectors.find(scan.connector).schema(scan.decoding))


def _checked_columns(scan: ScanOptions, schema: StructType) -> list[str]:
    """Return the columns that a schema names; raise ConfigError for unknown ones."""
    offered = {field.name: field for field in _offered_schema(scan)}
    for named in schema:
        field = offered.get(named.name)
        if field is None:
            raise ConfigError(
                f"schema: there is no column {named.name}; the columns are "
                f"{', '.join(offered)}"
            )
        if (named.dataType, named.nullable) != (field.dataType, field.nullable):
            raise ConfigError(
                f"schema: column {named.name} is {_described(field)}, "
                f"not {_described(named)}"
            )
    return schema.fieldNames()


def _described(field: StructField) -> str:
    return field.dataType.simpleString() + ("" if field.nullable else " not null")
