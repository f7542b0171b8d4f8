"""Finds the data files of a table that may match a scan, and cuts them into extents.

files       the data files in the log or in the folder     log.py, parquet_folder.py
where       excludes files without matching rows           where.py
small       files that need no footer                      small_files.py
footers     the row groups of each other file              footers.py
extents     row groups that are read together              extents.py
"""

from __future__ import annotations

import logging
import zlib
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache import connector as connectors
from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import SourceError
from sparkcache.filters import Bounds
from sparkcache.model import Ledger, qualified_topic
from sparkcache_delta import decoded_size, extents, pinned, rebase, small_files
from sparkcache_delta import options as scan_options
from sparkcache_delta.decode import constant
from sparkcache_delta.file_schema import FileSchema
from sparkcache_delta.footers import read_footers
from sparkcache_delta.names import only_topic
from sparkcache_delta.partition_times import in_zone, instants_of
from sparkcache_delta.python_values import value_or_none
from sparkcache_delta.row_groups import bounds
from sparkcache_delta.schema_projection import find_field
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.connector import Selection, Storage
    from sparkcache.filters import Filter
    from sparkcache.model import Extent, ObjectId
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
        return self.snapshot_for(topic, ())

    def snapshot_for(self, topic: str, filters: Sequence[Filter]) -> Snapshot:
        """Return the files and extents that may match. Raises as `snapshot` does."""
        storage, options = self._storage, self._options
        if not pinned.decoding(options):
            options = pinned.pin(storage, topic, options)
        files = pinned.files(storage, topic, options)
        maps = ledger_maps(storage, topic, files, options, filters=filters)
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
    small: Mapping[str, ObjectId] | None = None,
    filters: Sequence[Filter] = (),
) -> dict[str, LedgerMap]:
    """Return the files that may have matching rows, by URI, in the order of their ids.

    The options must be pinned. `small` is what `identities` returned, if that was
    called. Raises SourceError.
    """
    table_schema, where = _parsed(options)
    where = where.narrowed(filters, table_schema.plain_schema())
    instants = instants_of(table_schema.columns)
    zoned = (in_zone(file, instants, options) for file in files)
    bounds_of = _KnownBounds(where, table_schema)
    wanted = [file for file in zoned if where.may_have(bounds_of(file), file.rows)]
    if small is None:
        small = identities(storage, wanted, options)
    others = [file for file in wanted if file.uri not in small]
    footers = {footer.object.uri: footer for footer in read_footers(storage, others)}
    schemas = _FileSchemas(table_schema)
    full_topic = qualified_topic(topic, storage.root)
    maps = {}
    for number, file in _numbered(wanted):
        found: Iterable[Extent]
        if file.uri in small:
            _, decoding = schemas.of(file, is_legacy=False)
            object_id = small[file.uri]
            found = (small_files.extent(file, schemas.row_bytes(file)),)
        else:
            footer = footers.pop(file.uri)
            is_legacy = rebase.is_legacy(footer.metadata)
            file_schema, decoding = schemas.of(file, is_legacy=is_legacy)
            row_bytes = schemas.row_bytes(file)
            object_id = footer.object
            found = _extents(footer, file_schema, where, row_bytes)
        ledger = Ledger(CONNECTOR, full_topic, number, object_id, decoding)
        maps[file.uri] = LedgerMap(ledger, tuple(found))
    return maps


def identities(
    storage: Storage, files: Sequence[DataFile], options: Mapping[str, str]
) -> dict[str, ObjectId]:
    """Return the identities of the files that are planned without a footer, by URI.

    Empty if there are few files. The options must be pinned. Raises SourceError.
    """
    reads_all = scan_options.columns(options) is None
    return small_files.identities(
        storage, files, *_parsed(options), reads_all_columns=reads_all
    )


def least_id(file: DataFile) -> int:
    """Return a lower bound of a file's ledger id, which no other file affects."""
    return file.modified_ms << _HASH_BITS


def _parsed(options: Mapping[str, str]) -> tuple[FileSchema, Where]:
    table_schema = FileSchema.parse(pinned.decoding(options))
    return table_schema, Where.parse(options, table_schema.plain_schema())


def _numbered(files: Iterable[DataFile]) -> list[tuple[int, DataFile]]:
    """Number files, so that a file's number does not depend on the other files.

    Later files have greater numbers. Two files of one millisecond may, rarely, have the
    same number; then the second gets the next one.
    """
    numbered: dict[int, DataFile] = {}
    for file in sorted(files, key=attrgetter("uri")):
        hashed = zlib.crc32(file.uri.encode()) & ((1 << _HASH_BITS) - 1)
        number = least_id(file) | hashed
        while number in numbered:
            number += 1
        numbered[number] = file
    return sorted(numbered.items(), key=itemgetter(0))


class _FileSchemas:
    """The schemas of files, and their texts, which the files of a partition share."""

    def __init__(self, table_schema: FileSchema) -> None:
        self._table_schema = table_schema
        self._shared: dict[tuple[object, ...], tuple[FileSchema, str]] = {}
        schema = table_schema.plain_schema()
        self._row_bytes = sum(decoded_size.of_fixed(field.type) for field in schema)

    def row_bytes(self, file: DataFile) -> int:
        """Return what a decoded row has at least: all but stored texts and lists."""
        texts = (len(text) for text in file.values.values() if text is not None)
        return self._row_bytes + sum(texts)

    def of(self, file: DataFile, *, is_legacy: bool) -> tuple[FileSchema, str]:
        """Return the schema of a file, and its text."""
        key = (is_legacy, *file.values.items())
        if file.deleted is None and key in self._shared:
            return self._shared[key]
        schema = self._table_schema.for_file(
            file.values, file.deleted, is_legacy=is_legacy
        )
        described = schema, str(schema)
        if file.deleted is None:
            self._shared[key] = described
        return described


def _extents(
    footer: Footer, file_schema: FileSchema, where: Where, row_bytes: int
) -> Iterable[Extent]:
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
            size_bytes = footer.object.size_bytes
            yield extents.extent(metadata, size_bytes, groups, columns, row_bytes)


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


class _KnownBounds:
    """The bounds that are known without a footer, of the columns that are compared."""

    def __init__(self, where: Where, table_schema: FileSchema) -> None:
        schema = table_schema.plain_schema()
        self._types = {name: schema.field(name).type for name in where.columns}
        self._constants: dict[tuple[str, str | None], Any] = {}

    def __call__(self, file: DataFile) -> dict[str, Bounds]:
        known = {}
        for name in self._types:
            if name in file.values:
                known[name] = self._of_constant(name, file.values[name], file.rows)
            elif name in file.bounds:
                known[name] = file.bounds[name]
        return known

    def _of_constant(self, name: str, text: str | None, rows: int | None) -> Bounds:
        key = name, text
        if key not in self._constants:
            stored = constant(text, self._types[name], 1)[0]
            self._constants[key] = stored.is_valid, value_or_none(stored.as_py)
        is_valid, value = self._constants[key]
        return Bounds(value, value, 0 if is_valid else rows)
