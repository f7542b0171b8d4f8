"""The connector: constants, and calls of the functions that do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache import time_pruning
from sparkcache.connector import Connector
from sparkcache.model import topic_and_root
from sparkcache_rocketmq import (
    columns,
    extents,
    metadata,
    names,
    splitting,
    tags,
    times,
)
from sparkcache_rocketmq.decode import decode
from sparkcache_rocketmq.discovery import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from sparkcache.connector import (
        ByteStream,
        DecodedRun,
        RawRun,
        Storage,
        SurroundingRuns,
    )
    from sparkcache.model import Extent, Ledger, Position, Run


class RocketMQConnector(Connector):
    """Connector for Apache RocketMQ queues, tiered to object stores or to files."""

    name = "rocketmq"
    option_names = frozenset({tags.OPTION, metadata.OPTION, time_pruning.OPTION})

    def topic_name(self, topic: str) -> str:
        """Return the name without the cluster's hash; raises ConfigError."""
        return names.full_name(topic)

    def decoding(self, options: Mapping[str, str]) -> str:
        """Return "", since no option changes decoded rows; raises ConfigError."""
        time_pruning.skew_us(options)
        tags.wanted(options)
        return ""

    def schema(self, decoding: str) -> pa.Schema:
        """Return the columns, the same for all queues."""
        return columns.SCHEMA

    def entry_columns(self) -> tuple[str, str]:
        """Return the names of the columns with queue id and queue offset."""
        return columns.QUEUE_ID, columns.QUEUE_OFFSET

    def time_column(self) -> str:
        """Return the column of the store time, by which RocketMQ looks up times too."""
        return columns.STORE_TIME

    def row_count(self, ledger: Ledger, first: int, last: int) -> int:
        """Return the number of offsets, each of which is a message."""
        return last - first + 1

    def bounded_columns(self, decoding: str) -> Sequence[str]:
        """Return the columns of position, store time, tags and keys."""
        return [*super().bounded_columns(decoding), columns.TAGS, "__keys"]

    def is_single_topic(self, topic: str) -> bool:
        """Return whether a name identifies one queue."""
        return names.is_one(topic)

    def group(self, topic: str) -> str:
        """Return cluster and topic, which group all queues on all brokers."""
        return names.without_queue(topic_and_root(topic)[0])

    def matches(self, topic: str, name: str) -> bool:
        """Return whether a name covers a queue."""
        return names.matches(topic, name)

    def position(self, topic: str, text: str) -> Position:
        """Read a queue offset, or `queueId:offset`; raises ValueError."""
        return names.position(topic, text)

    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        """Return the catalog of the queues that brokers have tiered."""
        return Catalog(storage, options, self.decoding(options))

    def prune(
        self,
        storage: Storage,
        extents: Sequence[tuple[Ledger, Extent]],
        times_us: tuple[int | None, int | None],
        options: Mapping[str, str],
    ) -> range:
        """Select the extents of a time range by the first messages of some of them."""
        return time_pruning.prune(
            extents, lambda pair: times.first_us(storage, *pair), times_us, options
        )

    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        """Cut an extent at queue offsets that are multiples of a power of two."""
        return extents.runs(extent, run_bytes)

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        """Yield the records of each run as soon as its last record has arrived."""
        return splitting.split(ledger, extent, runs, stream)

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        """Decode the records of a run."""
        return decode(ledger, raw, batch_bytes)

    def selects_rows(self, options: Mapping[str, str]) -> bool:
        """Return whether messages are selected by their tags."""
        return bool(tags.wanted(options))

    def resolver(
        self,
        decoding: str,
        options: Mapping[str, str],
        surrounding: SurroundingRuns,
    ) -> tags.Resolver:
        """Return a resolver that drops messages whose tags are not wanted."""
        return tags.Resolver(tags.wanted(options))
