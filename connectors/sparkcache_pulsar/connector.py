"""The Pulsar connector: its constants, and calls of the functions that do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache import time_pruning
from sparkcache.connector import Connector
from sparkcache.model import topic_and_root
from sparkcache_pulsar import (
    frames,
    isolation,
    manifest,
    names,
    reading,
    records,
    schemas,
    times,
    unfinished,
)
from sparkcache_pulsar.decode import decode
from sparkcache_pulsar.decoding import form_of
from sparkcache_pulsar.discovery import Catalog
from sparkcache_pulsar.encryption import options as encryption
from sparkcache_pulsar.resolver import Resolver
from sparkcache_pulsar.sequencefile import Layout
from sparkcache_pulsar.together import decode_all

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
    from sparkcache.model import Extent, Ledger, Run


class PulsarConnector(Connector):
    """Topics of Apache Pulsar, offloaded to object stores or to files."""

    name = "pulsar"
    needs_surrounding_runs = True
    option_names = (
        schemas.OPTION_NAMES
        | encryption.OPTION_NAMES
        | {manifest.OPTION, isolation.OPTION, time_pruning.OPTION, unfinished.OPTION}
    )

    def topic_name(self, topic: str) -> str:
        """Return `persistent://tenant/namespace/topic`; raises ConfigError."""
        return names.full_name(topic)

    def decoding(self, options: Mapping[str, str]) -> str:
        """Return the schema of values, the isolation and the decryption, as a text."""
        time_pruning.skew_us(options)
        unfinished.max_upload_ms(options)
        return str(reading.decoding(options))

    def schema(self, decoding: str) -> pa.Schema:
        """Return the columns, spelled as in the Pulsar connector for Spark."""
        return reading.reading(decoding).schema

    def entry_columns(self) -> tuple[str, str]:
        """Return the names of the columns for ledger id and entry id."""
        return "__ledgerId", "__entryId"

    def time_column(self) -> str:
        """Return the name of the publish time column; every message has this time."""
        return "__publishTime"

    def bounded_columns(self, decoding: str) -> Sequence[str]:
        """Return the columns of position, times and key."""
        return [*super().bounded_columns(decoding), "__eventTime", "__key"]

    def is_single_topic(self, topic: str) -> bool:
        """Return whether a name is a partition's; other topics may have partitions."""
        return names.partition(topic) is not None

    def group(self, topic: str) -> str:
        """Return tenant and namespace."""
        return names.namespace(topic_and_root(topic)[0])

    def matches(self, topic: str, name: str) -> bool:
        """Return whether a topic has this name or is a partition of the named topic."""
        return name in (topic, names.without_partition(topic))

    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        """Return the catalog of what brokers have offloaded."""
        return Catalog(storage, options, self.decoding(options))

    def prune(
        self,
        storage: Storage,
        extents: Sequence[tuple[Ledger, Extent]],
        times_us: tuple[int | None, int | None],
        options: Mapping[str, str],
    ) -> range:
        """Choose extents by time, by reading the first message of some of them."""
        return time_pruning.prune(
            extents,
            lambda ledger_extent: times.first_us(storage, *ledger_extent),
            times_us,
            options,
        )

    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        """Cut an extent into runs of equal entry counts, if its format allows it."""
        if isinstance(extent, records.OneRun):
            return records.runs(extent)
        return frames.runs(extent, run_bytes)

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        """Yield the records of each run as soon as its last record has arrived."""
        form = form_of(ledger)
        if isinstance(form, Layout):
            return records.split(form, ledger, extent, runs, stream)
        return frames.split(ledger, extent, runs, stream)

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        """Decode the records of a run."""
        return decode(ledger, raw, batch_bytes)

    def decode_all(
        self, runs: Sequence[tuple[Ledger, RawRun]], batch_bytes: int
    ) -> list[DecodedRun]:
        """Decode the records of several ledgers at once."""
        return decode_all(runs, batch_bytes)

    def selects_rows(self, options: Mapping[str, str]) -> bool:
        """Return False: runs of chunks and transactions have columns of their own."""
        return False

    def resolver(
        self,
        decoding: str,
        options: Mapping[str, str],
        surrounding: SurroundingRuns,
    ) -> Resolver:
        """Return the resolver that assembles chunks and decides transactions."""
        return Resolver(decoding, surrounding)
