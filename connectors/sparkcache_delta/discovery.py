"""Finds the data files of a table that may match a scan, and cuts them into extents.

files       the data files in the log or in the folder     log.py, parquet_folder.py
where       excludes files without matching rows           where.py
footers     the row groups of each file                    footers.py
extents     row groups that are read together              extents.py
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache import connector as connectors
from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import SourceError
from sparkcache.model import Ledger, qualified_topic
from sparkcache_delta import extents, pinned, rebase
from sparkcache_delta.decode import constant
from sparkcache_delta.file_schema import FileSchema
from sparkcache_delta.footers import read_footers
from sparkcache_delta.names import only_topic
from sparkcache_delta.partition_times import in_zone
from sparkcache_delta.python_values import value_or_none
from sparkcache_delta.row_groups import bounds
from sparkcache_delta.schema_projection import find_field
from sparkcache_delta.table import Bounds
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.connector import Selection, Storage
    from sparkcache.model import Extent
    from sparkcache_delta.footers import Footer
    from sparkcache_delta.table import DataFile

CONNECTOR = "delta"

_HASH_BITS = 21  # a time in milliseconds takes 42
_log = logging.getLogger(__name__)


class Catalog(connectors.Catalog):
    """The tables below a root; see `sparkcache.connector.Catalog`."""

    def __init__(self, storage: Storage, options: Mapping[str, str]) -> None:
        self._storage = storage
        self._options = options

    def __repr__(self) -> str:
        return f"Catalog({self._storage.root})"

    def select(self, selection: Selection) -> Sequence[str]:
        """Return the one table that is selected; raises ConfigError."""
        return [only_topic(selection)]

    def snapshot(self, topic: str) -> Snapshot:
        """Return the files and extents of a table. Raises ConfigError, SourceError."""
        storage, options = self._storage, self._options
        if not pinned.decoding(options):
            options = pinned.pin(storage, topic, options)
        files = pinned.files(storage, topic, options)
        maps = ledger_maps(storage, topic, files, options)
        _log.info(
            "%s: %d of %d files, %d extents",
            qualified_topic(topic, storage.root),
            len(maps),
            len(files),
            sum(len(ledger_map.extents) for ledger_map in maps.values()),
        )
        return Snapshot(tuple(maps.values()))


def ledger_maps(
    storage: Storage,
    topic: str,
    files: Iterable[DataFile],
    options: Mapping[str, str],
) -> dict[str, LedgerMap]:
    """Return the files that may have matching rows, by URI, in the order of their ids.

    The options must be pinned. Raises SourceError.
    """
    table_schema = FileSchema.parse(pinned.decoding(options))
    where = Where.parse(options, table_schema.plain_schema())
    zoned = (in_zone(file, table_schema.columns, options) for file in files)
    wanted = [
        file
        for file in zoned
        if where.may_have(_bounds(file, where, table_schema), file.rows)
    ]
    footers = read_footers(storage, wanted)
    full_topic = qualified_topic(topic, storage.root)
    return {
        file.uri: LedgerMap(
            Ledger(CONNECTOR, full_topic, number, footer.object, str(file_schema)),
            tuple(_extents(footer, file_schema, where)),
        )
        for number, file, footer in _numbered(wanted, footers)
        for is_legacy in [rebase.is_legacy(footer.metadata)]
        for file_schema in [
            table_schema.for_file(file.values, file.deleted, is_legacy=is_legacy)
        ]
    }


def least_id(file: DataFile) -> int:
    """Return a lower bound of a file's ledger id, which no other file affects."""
    return file.modified_ms << _HASH_BITS


def _numbered(
    files: Iterable[DataFile], footers: Iterable[Footer]
) -> list[tuple[int, DataFile, Footer]]:
    """Number files, so that a file's number does not depend on the other files.

    Later files have greater numbers. Two files of one millisecond may, rarely, have the
    same number; then the second gets the next one.
    """
    numbered: dict[int, tuple[DataFile, Footer]] = {}
    for file, footer in sorted(
        zip(files, footers, strict=True), key=lambda pair: pair[0].uri
    ):
        hashed = zlib.crc32(file.uri.encode()) & ((1 << _HASH_BITS) - 1)
        number = least_id(file) | hashed
        while number in numbered:
            number += 1
        numbered[number] = file, footer
    return [(number, *numbered[number]) for number in sorted(numbered)]


def _extents(footer: Footer, file_schema: FileSchema, where: Where) -> Iterable[Extent]:
    """Yield the extents of a file that may have matching rows."""
    metadata = footer.metadata
    names = _stored_names(footer, file_schema)
    compared = {name: names[name] for name in where.columns & names.keys()}
    for groups in extents.row_groups(metadata):
        # Bounds in the legacy calendar mean other days; those of the log do not.
        known = [
            {} if file_schema.is_legacy else bounds(metadata, group, compared)
            for group in groups
        ]
        rows = [metadata.row_group(group).num_rows for group in groups]
        if sum(rows) and any(map(where.may_have, known, rows)):
            columns = frozenset(names.values())
            yield extents.extent(metadata, footer.object.size_bytes, groups, columns)


def _stored_names(footer: Footer, file_schema: FileSchema) -> dict[str, str]:
    """Return the names of columns in a file, by the table's. Raises SourceError."""
    stored = footer.metadata.schema.to_arrow_schema()
    try:
        indexes = [
            (field, find_field(field, stored, by_id=file_schema.by_id))
            for field in file_schema.columns
            if field.name not in (file_schema.values or {})
        ]
    except pa.ArrowInvalid as error:
        raise SourceError(
            footer.object.uri, expected="the table's columns", found=str(error)
        ) from error
    return {
        field.name: stored.field(index).name
        for field, index in indexes
        if index is not None
    }


def _bounds(
    file: DataFile, where: Where, table_schema: FileSchema
) -> Mapping[str, Bounds]:
    """Return the bounds of a file's columns that are known without its footer."""
    known = dict(file.bounds)
    for name in where.columns & file.values.keys():
        kind = table_schema.plain_schema().field(name).type
        stored = constant(file.values[name], kind, 1)[0]
        value = value_or_none(stored.as_py)
        known[name] = Bounds(value, value, 0 if stored.is_valid else file.rows)
    return known
