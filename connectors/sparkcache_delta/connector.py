"""The connector: its constants, and calls to the functions that implement it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from sparkcache.connector import TableConnector
from sparkcache_delta import extents, names, options, pinned, splitting
from sparkcache_delta.decode import decode
from sparkcache_delta.discovery import Catalog
from sparkcache_delta.file_schema import FileSchema
from sparkcache_delta.filtering import Resolver
from sparkcache_delta.options import WHERE
from sparkcache_delta.where import is_comparable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

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


_MAX_BOUNDED = 32


class DeltaConnector(TableConnector):
    """Delta tables, and folders of Parquet files, as topics."""

    name = "delta"
    option_names = options.NAMES
    stream_option_names = options.STREAM_NAMES
    root_topic = names.ROOT
    can_narrow = True

    def topic_name(self, topic: str) -> str:
        """Return the path of a table below the root; raises ConfigError."""
        return names.full_name(topic)

    def pin(
        self, storage: Storage, selection: Selection, options: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the options with the version and schema of the table."""
        return pinned.pin(storage, names.only_topic(selection), options)

    def decoding(self, options: Mapping[str, str]) -> str:
        """Return the pinned file schema; empty if nothing is pinned."""
        return pinned.decoding(options)

    def schema(self, decoding: str) -> pa.Schema:
        """Return the table's columns, or the selected ones."""
        return FileSchema.parse(decoding).plain_schema()

    def entry_columns(self) -> tuple[str, str]:
        """Return no names: the files of a table are read as a whole."""
        return "", ""

    def position(self, topic: str, text: str) -> Position:
        """Raise ConfigError: a table has versions, not positions."""
        return names.position(topic, text)

    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        """Return a catalog that reads the log of a table, or lists a folder."""
        return Catalog(storage, options)

    def change_log(
        self, storage: Storage, topic: str, options: Mapping[str, str]
    ) -> ChangeLog:
        """Return the log of the files that commits add. Raises ConfigError."""
        from sparkcache_delta.changes import TableChanges  # large, as in `tables`

        return TableChanges(storage, topic, options)

    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        """Cut an extent into runs of equal rows."""
        return extents.runs(extent, run_bytes)

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        """Yield the rows of each run with the columns and types of the file."""
        return splitting.split(ledger, extent, runs, stream)

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        """Convert rows of the file to rows of the table."""
        return decode(ledger, raw, batch_bytes)

    def narrowed(
        self, options: Mapping[str, str], columns: Collection[str]
    ) -> Mapping[str, str]:
        """Return the options with fewer columns; those of `where` are kept."""
        return pinned.narrowed(options, columns)

    def filtered_columns(self, decoding: str) -> frozenset[str]:
        """Return the columns of flat types, which may have bounds."""
        schema = self.schema(decoding)
        return frozenset(field.name for field in schema if is_comparable(field))

    def row_count(self, ledger: Ledger, first: int, last: int) -> int:
        """Return the number of rows of the file that are not deleted."""
        rows = last - first + 1
        deleted = FileSchema.parse(ledger.decoding).deleted_rows(first, rows)
        return rows if deleted is None else rows - int(deleted.sum())

    def bounded_columns(self, decoding: str) -> Sequence[str]:
        """Return the first columns of flat types."""
        schema = self.schema(decoding)
        names = (field.name for field in schema if is_comparable(field))
        return list(islice(names, _MAX_BOUNDED))

    def selects_rows(self, options: Mapping[str, str]) -> bool:
        """Return whether rows are selected by `where`."""
        return WHERE in options

    def resolver(
        self,
        decoding: str,
        options: Mapping[str, str],
        surrounding: SurroundingRuns,
    ) -> Resolver:
        """Return a resolver that removes the rows that do not match `where`."""
        return Resolver(FileSchema.parse(decoding).plain_schema(), options)
