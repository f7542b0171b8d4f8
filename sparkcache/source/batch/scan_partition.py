"""How what is read of several topics becomes Spark partitions."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sparkcache import connector as connectors
from sparkcache.source import settings
from sparkcache.source.batch.partitions import partition, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.config import CacheConfig
    from sparkcache.connector import Snapshot, Storage
    from sparkcache.demand import Consumer
    from sparkcache.source.batch.partitions import Located, Piece
    from sparkcache.source.options import ScanOptions

_FOLLOWING = 4  # partitions: about as many begin at once as an executor has cores


class ScanPartition(InputPartition):
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


def cut(
    scan: ScanOptions,
    config: CacheConfig,
    storage: Storage,
    found: Sequence[tuple[Consumer, Snapshot]],
) -> Iterator[ScanPartition]:
    """Yield the partitions of what is read; the versions of objects are pinned.

    Raises SourceError for a loss, if the scan fails on it.
    """
    connector = connectors.find(scan.connector)
    pieces_of = partition(
        [_extents(scan, storage, *of_topic) for of_topic in found],
        scan.min_partitions,
        config.partition_bytes,
        lambda extent: len(connector.runs(extent, config.run_bytes)),
    )
    scan_id = uuid.uuid4().hex
    number = 0
    for index, ((consumer, _), pieces) in enumerate(zip(found, pieces_of, strict=True)):
        last = pieces[-1][-1] if pieces else None
        end = last.at + last.extent.size_bytes if last else 0
        begins = [part[0] for part in pieces]
        for at, part in enumerate(pieces or [[]], start=1):
            following = begins[at : at + _FOLLOWING]
            of = f"{scan_id}.{index}"
            yield ScanPartition(part, following, consumer, of, number, end)
            number += 1


def _extents(
    scan: ScanOptions, storage: Storage, consumer: Consumer, snapshot: Snapshot
) -> list[Located]:
    """Return the extents of a topic that a scan may want anything of."""
    settings.report(snapshot.losses, consumer, fail=scan.fail_on_data_loss)
    extents = wanted(snapshot.ledgers, consumer)
    times_us = scan.start_us, scan.end_us
    if times_us == (None, None):
        return extents
    places = [(ledger, extent) for ledger, extent, _ in extents]
    connector = connectors.find(scan.connector)
    chosen = connector.prune(storage, places, times_us, scan.raw)
    return extents[chosen.start : chosen.stop]
