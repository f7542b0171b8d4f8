"""What is looked up when a DataFrame is made, and holds for all its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as asked
from sparkcache_delta import pinned_files
from sparkcache_delta.file_schema import NO_FORM, Form
from sparkcache_delta.names import place
from sparkcache_delta.partition_times import require_zone
from sparkcache_delta.tables import find_table
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache_delta.table import DataFile, Table

_FORM = "pinnedForm"  # no options: users cannot give them
_FILES = "pinnedFiles"
_CHOSEN = "pinnedBy"


def pin(storage: Storage, topic: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with version and columns. Raises ConfigError, SourceError."""
    asked.check(options)
    at = find_table(storage, place(storage.root, topic), options)
    found, files = at.table(), at.few_files()
    form = Form(_chosen(found, options), found.by_id)
    Where.parse(options, form.plain_schema())
    for name in found.without_zone:
        if name in form.schema.names:
            require_zone(options, name)
    given = {name: text for name, text in options.items() if name != asked.TIMESTAMP}
    if found.version is not None:
        given[asked.VERSION] = str(found.version)
    chosen = [name for name in (asked.VERSION, asked.TIMESTAMP) if name in options]
    if files is not None:
        given[_FILES] = pinned_files.written(files)
    return given | {_FORM: str(form), _CHOSEN: ",".join(chosen)}


def files(
    storage: Storage, topic: str, options: Mapping[str, str]
) -> Sequence[DataFile]:
    """Return the data files of what was pinned. Raises ConfigError, SourceError."""
    if _FILES in options:
        return pinned_files.parse(options[_FILES])
    return find_table(storage, place(storage.root, topic), options).files()


def followed(options: Mapping[str, str], place: str) -> int:
    """Return the version whose columns a stream has; raises ConfigError."""
    if options[_CHOSEN]:
        raise ConfigError(
            f"option {options[_CHOSEN]}: a stream goes on with the table; give "
            f"{asked.STARTING_VERSION} or {asked.STARTING_TIMESTAMP}"
        )
    if "startingOffsets" in options:
        raise ConfigError(
            f"option startingOffsets={options['startingOffsets']!r}: a table has "
            f"versions; give {asked.STARTING_VERSION}, a number or {asked.LATEST}"
        )
    if asked.VERSION not in options:
        raise ConfigError(
            f"{place} is no Delta table but a folder, of which nobody tells what is "
            "new: it cannot be read as a stream"
        )
    return int(options[asked.VERSION])


def decoding(options: Mapping[str, str]) -> str:
    """Return the form that was pinned, if one was; raises ConfigError."""
    asked.check(options)
    return options.get(_FORM, NO_FORM)


def _chosen(table: Table, options: Mapping[str, str]) -> pa.Schema:
    """Return the columns that are to be read; raises ConfigError."""
    names = asked.columns(options)
    if names is None:
        return table.schema
    unknown = [name for name in names if name not in table.schema.names]
    if unknown:
        raise ConfigError(
            f"option {asked.COLUMNS}={options[asked.COLUMNS]!r}: there is no column "
            f"{', '.join(unknown)}; there are {', '.join(table.schema.names)}"
        )
    return pa.schema([table.schema.field(name) for name in names])
