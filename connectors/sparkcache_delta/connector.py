"""The connector: constants, and the way to the functions that do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.connector import TableConnector
from sparkcache_delta import extents, names, options, pinned, splitting
from sparkcache_delta.decode import decode
from sparkcache_delta.discovery import Catalog
from sparkcache_delta.file_schema import Form
from sparkcache_delta.filtering import Resolver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from sparkcache.connector import (
        ByteStream,
        ChangeLog,
        DecodedRun,
        RawRun,
        Selection,
        Storage,
        SurroundingRuns,
    )
    from sparkcache.model import Extent, Ledger, Position, Run


class DeltaConnector(TableConnector):
    """Delta tables, and folders of Parquet files, as topics."""

    name = "delta"
    needs_surrounding_runs = False
    option_names = options.NAMES
    stream_option_names = options.STREAM_NAMES
    root_topic = names.ROOT

    def topic_name(self, topic: str) -> str:
        """Return the path of a table below the root; raises ConfigError."""
        return names.full_name(topic)

    def pin(
        self, storage: Storage, selection: Selection, options: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Look up version and schema of a table."""
        return pinned.pin(storage, names.only(selection), options)

    def decoding(self, options: Mapping[str, str]) -> str:
        """Return the columns, once they are pinned."""
        return pinned.decoding(options)

    def schema(self, decoding: str) -> pa.Schema:
        """Return the table's columns, or those that were chosen."""
        return Form.parse(decoding).plain_schema()

    def entry_columns(self) -> tuple[str, str]:
        """Return no names: a table's files are read whole."""
        return "", ""

    def time_column(self) -> str:
        """Return no name: a table has columns of its own."""
        return ""

    def is_single_topic(self, topic: str) -> bool:
        """Tell that a path is that of one table."""
        return True

    def matches(self, topic: str, name: str) -> bool:
        """Tell whether a table is meant."""
        return topic == name

    def group(self, topic: str) -> str:
        """Return the table: it is counted by itself."""
        return topic

    def position(self, topic: str, text: str) -> Position:
        """Raise ValueError: versions are what a table has."""
        return names.position(topic, text)

    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        """Return what reads the log of a table, or lists a folder."""
        return Catalog(storage, options)

    def change_log(
        self, storage: Storage, topic: str, options: Mapping[str, str]
    ) -> ChangeLog:
        """Return what tells which files commits have added. Raises ConfigError."""
        from sparkcache_delta.changes import TableChanges  # see `tables`

        return TableChanges(storage, topic, options)

    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        """Cut an extent into runs of as many rows each."""
        return extents.runs(extent, run_bytes)

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        """Yield the rows of each run as the file has them."""
        return splitting.split(ledger, extent, runs, stream)

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        """Make rows of the file rows of the table."""
        return decode(ledger, raw, batch_bytes)

    def resolver(
        self,
        decoding: str,
        options: Mapping[str, str],
        surrounding: SurroundingRuns,
    ) -> Resolver:
        """Return what leaves out rows that `where` does not want."""
        return Resolver(Form.parse(decoding).plain_schema(), options)
