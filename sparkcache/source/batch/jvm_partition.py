"""Partitions for the reader in the JVM, which reads what needs no decision of Python.

The JVM cannot run connectors. So the planner computes the runs of a partition, and says
where the rows of the runs, as they are cached, are those of the scan. Every other
partition is read in Python, and so is the rest of one whose node fails, or whose runs
turn out to need their connector.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sparkcache import connector as connectors
from sparkcache.filters import Filter
from sparkcache.homes import NO_CLUSTER, Cluster, keys
from sparkcache.node import opening
from sparkcache.node.messages import PROTOCOL_VERSION
from sparkcache.source.batch.packing import compressed, dictionary_of
from sparkcache.source.batch.partitions import (
    PositionFilter,
    entries_of,
    reads_all_of,
    reads_whole,
    run_slice,
)
from sparkcache.source.batch.scan_partition import ScanPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from sparkcache.config import CacheConfig
    from sparkcache.fetch import RunSlice
    from sparkcache.source.batch.partitions import Piece
    from sparkcache.source.options import ScanOptions

OPTION = "sparkcache.jvm"
"""Option that the JVM adds: the session's settings, as a JSON object."""

FILTERS = "sparkcache.filters"
"""Metadata that the JVM adds to the first column: the filters of the query, as JSON."""

EXECUTORS = "sparkcache.executors"
"""Metadata likewise: the `Cluster`, as JSON."""

NARROWED = "sparkcache.narrowed"
"""Metadata likewise: only the columns of this schema are to be fetched."""

_BOUNDS = struct.Struct("<ii")
_EXTENT = struct.Struct("<QQ")
_SIZES = struct.Struct("<4i")
_MOST_TOPICS = 100
_SHOWN = ("startingTime", "endingTime", "versionAsOf", "tags", "where")


class JvmPartition(InputPartition):
    """A partition for the JVM.

    Attributes:
        partition: The partition for Python.
        planned: A PlannedPartition; empty if the partition is to be read in Python.
        bounds: The first run and the run after the last, of each slice, as int32.
        scan: What the JVM must know of the whole scan, as JSON; empty except in the
            first partition.
        rows: How many rows there are; -1 if only reading tells.
        dictionary: The dictionary with which it travels compressed.

    """

    dictionary = b""

    def __init__(
        self,
        partition: ScanPartition,
        planned: bytes,
        bounds: bytes,
        scan: bytes,
        rows: int,
    ) -> None:
        super().__init__(None)
        self.partition = partition
        self.planned = planned
        self.bounds = bounds
        self.scan = scan
        self.rows = rows

    def extents(self) -> bytes:
        """Return the key of each extent and its number of parts, if it has a home.

        The number is 0 if the runs that are read are not all that a consumer without
        filters reads of the whole extent: then the read does not count for the plan.
        """
        pieces, filters = self.partition.pieces, self.partition.filters
        if not self.partition.home:
            return b""
        consumer = self.partition.consumer
        found = keys((piece.ledger, piece.extent) for piece in pieces).tolist()
        return b"".join(
            _EXTENT.pack(
                key, 0 if filters or not reads_whole(piece, consumer) else piece.parts
            )
            for key, piece in zip(found, pieces, strict=True)
        )

    def body(self) -> bytes:
        """Return what the task needs, not compressed yet: four sizes and four parts."""
        parts = self.planned, self.bounds, self.extents(), self.partition.packed()
        return b"".join((_SIZES.pack(*map(len, parts)), *parts))

    def __reduce__(self) -> tuple[object, ...]:
        return planned_for_jvm, (
            compressed(self.body(), self.dictionary),
            bool(self.planned),
            self.rows,
            self.partition.home,
            self.scan,
            self.dictionary if self.scan else b"",
        )


def planned_for_jvm(*fields: object) -> tuple[object, ...]:
    """Return the fields of a partition as the JVM gets them."""
    return fields


def open_in_python(packed: bytes) -> ScanPartition:
    """Return a partition that the JVM has Python read."""
    return ScanPartition.unpacked(packed)


def filters_of(schema: StructType) -> tuple[Filter, ...]:
    """Return the filters of the query that a scan is planned for."""
    text = (schema.fields[0].metadata or {}).get(FILTERS, "[]")
    return msgspec.json.decode(text, type=tuple[Filter, ...])


def cluster_of(schema: StructType, config: CacheConfig) -> Cluster:
    """Return the cluster among whose executors extents have homes, if they have any."""
    if not (config.homes and config.enabled):
        return NO_CLUSTER
    text = (schema.fields[0].metadata or {}).get(EXECUTORS, "{}")
    return msgspec.json.decode(text, type=Cluster)


def narrowed(scan: ScanOptions, schema: StructType) -> ScanOptions:
    """Return a scan that fetches no columns but those of a schema, if so planned."""
    if NARROWED not in (schema.fields[0].metadata or {}):
        return scan
    connector = connectors.find(scan.connector)
    raw = connector.narrowed(scan.raw, schema.fieldNames())
    return replace(scan, raw=raw, decoding=connector.decoding(raw))


def for_jvm(
    scan: ScanOptions,
    config: CacheConfig,
    installed: CacheConfig | None,
    partitions: Sequence[ScanPartition],
) -> list[JvmPartition]:
    """Return partitions as the JVM opens them."""
    reason = _reason(scan, config)
    connector = connectors.find(scan.connector)
    topics = list(dict.fromkeys(part.consumer.topic for part in partitions))
    slices_of = [_slices(part.pieces, part, config) for part in partitions]
    about = {
        "name": _name(scan, partitions),
        "topics": topics[:_MOST_TOPICS],
        "reason": reason,
        "bytes": sum(map(_stored_bytes, chain(*slices_of))),
        "columns": len(connector.schema(scan.decoding)),
        "filtered": sorted(
            {*filter(None, connector.entry_columns())}
            | connector.filtered_columns(scan.decoding)
        ),
    }
    made: list[JvmPartition] = []
    for partition, slices in zip(partitions, slices_of, strict=True):
        planned = bounds = b""
        if not reason and not partition.report and _is_plain(slices, partition):
            planned = _planned(scan, config, installed, partition, slices)
            bounds = b"".join(_BOUNDS.pack(one.start, one.stop) for one in slices)
        header = b"" if made else msgspec.json.encode(about)
        rows = -1 if reason or partition.report else _rows(slices, partition)
        made.append(JvmPartition(partition, planned, bounds, header, rows))
    dictionary = dictionary_of(made[0].body())
    for each in made:
        each.dictionary = dictionary
    return made


def _name(scan: ScanOptions, partitions: Sequence[ScanPartition]) -> str:
    """Return the topics and the range of a scan, for Spark's plans."""
    consumers = dict.fromkeys(partition.consumer for partition in partitions)
    starts = {str(each.start) for each in consumers if each.start is not None}
    ends = {str(each.end) for each in consumers if each.end is not None}
    limits = [("from", starts), ("to", ends)]
    shown = [
        f"{word} {next(iter(found)) if len(found) == 1 else 'several positions'}"
        for word, found in limits
        if found
    ]
    shown += [f"{name}={scan.raw[name]}" for name in _SHOWN if name in scan.raw]
    return ", ".join([str(scan.selection), *shown])


def _rows(slices: Sequence[RunSlice], partition: ScanPartition) -> int:
    """Return how many rows a partition has; -1 if only reading tells."""
    total = 0
    for part in slices:
        connector = connectors.find(part.ledger.connector)
        entries = entries_of(part, partition.consumer)
        rows = connector.row_count(part.ledger, *entries)
        if rows is None:
            return -1
        total += rows
    return total


def _reason(scan: ScanOptions, config: CacheConfig) -> str:
    """Return why a scan is read in Python; empty if it need not be."""
    connector = connectors.find(scan.connector)
    if not config.enabled:
        return "enabled=false"
    if config.engine != "runs":
        return f"engine={config.engine}"
    if scan.start_us is not None or scan.end_us is not None:
        return "startingTime or endingTime selects rows"
    if connector.selects_rows(scan.raw):
        return "an option of the connector selects rows"
    for field in connector.schema(scan.decoding):
        if not _is_simple(field.type):
            return f"column {field.name} is of type {field.type}"
    return ""


def _is_simple(type_: pa.DataType) -> bool:
    """Return whether Spark reads a column of this type as it lies in memory."""
    kinds = pa.types
    if kinds.is_list(type_):
        return _is_simple(type_.value_type)
    if kinds.is_struct(type_):
        return all(_is_simple(field.type) for field in type_) and not {
            "metadata",
            "value",
        } <= {field.name for field in type_}  # a variant
    if kinds.is_map(type_):
        return _is_simple(type_.key_type) and _is_simple(type_.item_type)
    return bool(
        kinds.is_boolean(type_)
        or kinds.is_signed_integer(type_)
        or kinds.is_float32(type_)
        or kinds.is_float64(type_)
        or kinds.is_decimal128(type_)
        or kinds.is_string(type_)
        or kinds.is_binary(type_)
        or kinds.is_date32(type_)
        or (kinds.is_timestamp(type_) and type_.unit == "us")
    )


def _slices(
    pieces: Sequence[Piece], partition: ScanPartition, config: CacheConfig
) -> tuple[RunSlice, ...]:
    found = []
    for piece in pieces:
        connector = connectors.find(piece.ledger.connector)
        runs = connector.runs(piece.extent, config.run_bytes)
        positions = PositionFilter(connector.entry_columns(), partition.filters)
        found.append(run_slice(piece, runs, partition.consumer, positions))
    return tuple(filter(None, found))


def _stored_bytes(part: RunSlice) -> int:
    """Return the approximate size of the runs of a slice."""
    return part.extent.size_bytes * (part.stop - part.start) // len(part.runs)


def _is_plain(slices: Sequence[RunSlice], partition: ScanPartition) -> bool:
    """Return whether all rows of all runs are within the scan's positions."""
    consumer = partition.consumer
    return all(reads_all_of(one, consumer) for one in slices)


def _planned(
    scan: ScanOptions,
    config: CacheConfig,
    installed: CacheConfig | None,
    partition: ScanPartition,
    slices: tuple[RunSlice, ...],
) -> bytes:
    connector = connectors.find(scan.connector)
    following = [
        (part, _slices([piece], partition, config))
        for part, piece in partition.following
    ]
    return opening.pack(
        PROTOCOL_VERSION,
        scan.root,
        installed,
        dict(scan.raw),
        slices,
        tuple((part, first[0]) for part, first in following if first),
        partition.consumer,
        partition.scan,
        partition.part,
        partition.end,
        connector.group(partition.consumer.topic),
    )
