"""The Spark partitions of a scan of one topic or more."""

from __future__ import annotations

import pickle
import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sparkcache import connector as connectors
from sparkcache.connector import TableConnector
from sparkcache.homes import NO_CLUSTER, homes, keys
from sparkcache.reported_loss import LossReport
from sparkcache.source import settings
from sparkcache.source.batch.packing import (
    compressed,
    decompressed,
    pack,
    unpack,
)
from sparkcache.source.batch.partitions import (
    PiecesOfPartition,
    PositionFilter,
    extent_offsets,
    partition,
    wanted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.config import ScanConfig
    from sparkcache.connector import Snapshot, Storage
    from sparkcache.demand import Consumer
    from sparkcache.filters import Filter
    from sparkcache.homes import Cluster
    from sparkcache.model import Extent, Ledger
    from sparkcache.source.batch.partitions import Homes, Located, Piece
    from sparkcache.source.options import ScanOptions

_FOLLOWING = 4  # partitions: an executor starts about as many at once as it has cores


class ScanPartition(InputPartition):
    """The part of one topic that one Spark task reads.

    It travels as a `PackedPartition`.

    Attributes:
        pieces: The pieces to read, in order.
        following: The first piece of each of the topic's next partitions that have the
            same home, with the index of the partition.
        consumer: The consumer of the topic.
        scan: Id of the scan of this topic.
        part: Index of the partition in the whole scan.
        end: End of the scan in the topic, in stored bytes from the topic's beginning.
        report: The losses found by planning, which the task reports to its node.
        filters: The filters of the query.
        home: Where Spark is to read it, as `homes.Executor.location`; empty if
            anywhere.
        dictionary: The dictionary with which it travels compressed.

    """

    dictionary = b""

    def __init__(
        self,
        pieces: list[Piece],
        following: list[tuple[int, Piece]],
        consumer: Consumer,
        scan: str,
        part: int,
        end: int,
        report: LossReport,
        filters: tuple[Filter, ...],
        home: str = "",
    ) -> None:
        super().__init__(pieces)
        self.pieces = pieces
        self.following = following
        self.consumer = consumer
        self.scan = scan
        self.part = part
        self.end = end
        self.report = report
        self.filters = filters
        self.home = home

    def packed(self) -> bytes:
        """Return the partition as bytes, not compressed yet."""
        following = [piece for _, piece in self.following]
        fields = (
            pack([*self.pieces, *following]),
            [part - self.part for part, _ in self.following],
            self.consumer,
            self.scan,
            self.part,
            self.end,
            self.report,
            self.filters,
            self.home,
        )
        return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)

    @classmethod
    def unpacked(cls, packed: bytes) -> ScanPartition:
        """Return the partition that was packed into these bytes."""
        pieces, following, consumer, scan, part, *others = pickle.loads(packed)  # noqa: S301 - made by `packed`
        found = unpack(*pieces)
        count = len(found) - len(following)
        ahead = [
            (part + distance, piece)
            for distance, piece in zip(following, found[count:], strict=True)
        ]
        return cls(found[:count], ahead, consumer, scan, part, *others)

    def __reduce__(self) -> tuple[object, ...]:
        return PackedPartition, (compressed(self.packed(), self.dictionary),)


class PackedPartition(InputPartition):
    """A partition as it travels: the reader of the scan has the dictionary."""

    def unpacked(self, dictionary: bytes) -> ScanPartition:
        """Return the partition."""
        return ScanPartition.unpacked(decompressed(self.value, dictionary))


def cut(
    scan: ScanOptions,
    config: ScanConfig,
    storage: Storage,
    snapshots: Sequence[tuple[Consumer, Snapshot]],
    filters: tuple[Filter, ...] = (),
    cluster: Cluster = NO_CLUSTER,
) -> Iterator[ScanPartition]:
    """Yield the partitions of a scan; the versions of objects are pinned.

    The snapshots may lack what does not match the filters of the query already.
    Without a cluster Spark decides where the partitions are read. Raises SourceError
    for a loss, if the scan fails on losses.
    """
    connector = connectors.find(scan.connector)
    positions = PositionFilter(connector.entry_columns(), filters)
    reports = [
        _report(snapshot, consumer, fail=scan.fail_on_data_loss)
        for consumer, snapshot in snapshots
    ]
    partitions_by_topic = partition(
        [
            _extents(scan, storage, consumer, snapshot, positions)
            for consumer, snapshot in snapshots
        ],
        scan.min_partitions,
        config.partition_bytes,
        lambda extent: len(connector.runs(extent, config.run_bytes)),
        _homes(scan, snapshots, cluster),
    )
    scan_id = uuid.uuid4().hex
    part = 0
    for index, ((consumer, _), partitions) in enumerate(
        zip(snapshots, partitions_by_topic, strict=True)
    ):
        last = max(
            (each.pieces[-1] for each in partitions),
            key=lambda piece: piece.topic_offset,
            default=None,
        )
        end = last.topic_offset + last.extent.size_bytes if last else 0
        following = _following(partitions, part)
        report = reports[index]
        for each in partitions or [PiecesOfPartition([])]:
            yield ScanPartition(
                each.pieces,
                following.get(part, []),
                consumer,
                f"{scan_id}.{index}",
                part,
                end,
                report,
                filters,
                each.home,
            )
            report = LossReport()
            part += 1


def _following(
    partitions: Sequence[PiecesOfPartition], first: int
) -> dict[int, list[tuple[int, Piece]]]:
    """Return which partitions follow each one at its home, by their indexes.

    Args:
        partitions: The partitions of a topic.
        first: The index of the first one.

    """
    of_home: dict[str, list[tuple[int, Piece]]] = {}
    places = {}
    for part, each in enumerate(partitions, first):
        at_home = of_home.setdefault(each.home, [])
        at_home.append((part, each.pieces[0]))
        places[part] = each.home, len(at_home)
    return {
        part: of_home[home][place : place + _FOLLOWING]
        for part, (home, place) in places.items()
    }


def _homes(
    scan: ScanOptions,
    snapshots: Sequence[tuple[Consumer, Snapshot]],
    cluster: Cluster,
) -> Homes:
    """Return the homes of all extents, and how many planned reads of each are done."""
    connector = connectors.find(scan.connector)
    has_filters = bool(connector.filtered_columns(scan.decoding))
    # A batch of a stream has no other files of a table than those that it reads.
    is_part = has_filters or isinstance(connector, TableConnector)
    found: dict[tuple[Ledger, Extent], tuple[str, int]] = {}
    for snapshot in {id(each): each for _, each in snapshots}.values():
        extents = [
            (ledger, extent) for ledger, extent, _ in extent_offsets(snapshot.ledgers)
        ]
        places = homes(extents, cluster, is_part=is_part)
        held = map(cluster.held.get, keys(extents).tolist() if places else ())
        for extent, home, known in zip(extents, places, held, strict=False):
            found[extent] = home, known.reads if known else 0
    return found


def _report(snapshot: Snapshot, consumer: Consumer, *, fail: bool) -> LossReport:
    report = LossReport()
    report.add(settings.report(snapshot.losses, consumer, fail=fail))
    return report


def _extents(
    scan: ScanOptions,
    storage: Storage,
    consumer: Consumer,
    snapshot: Snapshot,
    positions: PositionFilter,
) -> list[Located]:
    """Return the extents of a topic with entries that a scan may read."""
    extents = wanted(snapshot.ledgers, consumer, positions)
    times_us = scan.start_us, scan.end_us
    if times_us == (None, None):
        return extents
    candidates = [(ledger, extent) for ledger, extent, _ in extents]
    connector = connectors.find(scan.connector)
    chosen = connector.prune(storage, candidates, times_us, scan.raw)
    return extents[chosen.start : chosen.stop]
