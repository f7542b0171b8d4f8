"""Properties looked up when a DataFrame is made, which hold for all its actions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as scan_options
from sparkcache_delta import pinned_files
from sparkcache_delta.file_schema import NO_SCHEMA, FileSchema
from sparkcache_delta.names import table_uri
from sparkcache_delta.partition_times import require_zone
from sparkcache_delta.tables import find_table
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache_delta.table import DataFile, Table

_SCHEMA = "pinnedSchema"  # not public options: users cannot set them
_FILES = "pinnedFiles"
_CHOSEN = "pinnedBy"


def pin(storage: Storage, topic: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with version and columns. Raises ConfigError, SourceError."""
    scan_options.check(options)
    if _SCHEMA in options:
        return dict(options)
    found = find_table(storage, table_uri(storage.root, topic), options)
    table, files = found.table(), found.few_files()
    file_schema = FileSchema(_chosen(table, options), table.by_id)
    Where.parse(options, file_schema.plain_schema())
    for name in table.without_zone:
        if name in file_schema.columns.names:
            require_zone(options, name)
    pinned = {
        name: text for name, text in options.items() if name != scan_options.TIMESTAMP
    }
    if table.version is not None:
        pinned[scan_options.VERSION] = str(table.version)
    chosen = [
        name
        for name in (scan_options.VERSION, scan_options.TIMESTAMP)
        if name in options
    ]
    if files is not None:
        pinned[_FILES] = pinned_files.serialize(files)
    return pinned | {_SCHEMA: str(file_schema), _CHOSEN: ",".join(chosen)}


def narrowed(options: Mapping[str, str], columns: Collection[str]) -> Mapping[str, str]:
    """Return pinned options with some of their columns, and those of `where`."""
    file_schema = FileSchema.parse(options[_SCHEMA])
    where = Where.parse(options, file_schema.plain_schema())
    kept = [
        field
        for field in file_schema.columns
        if field.name in columns or field.name in where.columns
    ]
    if len(kept) == len(file_schema.columns):
        return options
    schema = pa.schema(kept, file_schema.columns.metadata)
    named = json.dumps([field.name for field in kept])
    chosen = {scan_options.COLUMNS: named}
    return {**options, **chosen, _SCHEMA: str(replace(file_schema, columns=schema))}


def files(
    storage: Storage, topic: str, options: Mapping[str, str]
) -> Sequence[DataFile]:
    """Return the data files of pinned options. Raises ConfigError, SourceError."""
    if _FILES in options:
        return pinned_files.parse(options[_FILES])
    return find_table(storage, table_uri(storage.root, topic), options).files()


def stream_version(options: Mapping[str, str], uri: str) -> int:
    """Return the version whose columns a stream has; raises ConfigError."""
    if options[_CHOSEN]:
        raise ConfigError(
            f"option {options[_CHOSEN]}: a stream follows all versions of the table; "
            f"use {scan_options.STARTING_VERSION} or "
            f"{scan_options.STARTING_TIMESTAMP}"
        )
    if "startingOffsets" in options:
        raise ConfigError(
            f"option startingOffsets={options['startingOffsets']!r}: a table has "
            f"versions; use {scan_options.STARTING_VERSION} with a number or "
            f"{scan_options.LATEST}"
        )
    if scan_options.VERSION not in options:
        raise ConfigError(
            f"{uri} is a folder of Parquet files, not a Delta table: it has no log of "
            "new files, so it cannot be read as a stream"
        )
    return int(options[scan_options.VERSION])


def decoding(options: Mapping[str, str]) -> str:
    """Return the pinned file schema as a text, or NO_SCHEMA; raises ConfigError."""
    scan_options.check(options)
    return options.get(_SCHEMA, NO_SCHEMA)


def _chosen(table: Table, options: Mapping[str, str]) -> pa.Schema:
    """Return the columns to read; raises ConfigError."""
    names = scan_options.columns(options)
    if names is None:
        return table.schema
    unknown = [name for name in names if name not in table.schema.names]
    if unknown:
        raise ConfigError(
            f"option {scan_options.COLUMNS}={options[scan_options.COLUMNS]!r}: the "
            f"table has no column {', '.join(unknown)}; it has "
            f"{', '.join(table.schema.names)}"
        )
    return pa.schema([table.schema.field(name) for name in names])
