"""Finds the data files of a table that a scan may want rows of, and cuts them.

files       what the log says, or a folder has               log.py, parquet_folder.py
where       not those that cannot have rows that are wanted  where.py
footers     which row groups there are                       footers.py
extents     row groups that are read together                extents.py
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import SourceError
from sparkcache.model import Ledger, qualified_topic
from sparkcache_delta import extents, pinned, rebase
from sparkcache_delta.decode import constant
from sparkcache_delta.file_schema import Form
from sparkcache_delta.footers import read_footers
from sparkcache_delta.names import only
from sparkcache_delta.partition_times import in_zone
from sparkcache_delta.row_groups import bounds
from sparkcache_delta.schema_projection import find
from sparkcache_delta.table import Bounds
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.connector import Selection, Storage
    from sparkcache.model import Extent
    from sparkcache_delta.footers import Footer
    from sparkcache_delta.table import DataFile

CONNECTOR = "delta"

_HASH_BITS = 21  # beside 42 of a time in milliseconds
_log = logging.getLogger(__name__)


class Catalog:
    """Tables below a root; see `sparkcache.connector.Catalog`."""

    def __init__(self, storage: Storage, options: Mapping[str, str]) -> None:
        self._storage = storage
        self._options = options

    def __repr__(self) -> str:
        return f"Catalog({self._storage.root})"

    def select(self, selection: Selection) -> Sequence[str]:
        """Return the one table that is meant; raises ConfigError."""
        return [only(selection)]

    def snapshot(self, topic: str) -> Snapshot:
        """Return the files of a table. Raises ConfigError, SourceError."""
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
            sum(len(found.extents) for found in maps.values()),
        )
        return Snapshot(tuple(maps.values()))


def ledger_maps(
    storage: Storage,
    topic: str,
    files: Iterable[DataFile],
    options: Mapping[str, str],
) -> dict[str, LedgerMap]:
    """Return the files with rows that may be wanted, by their URIs.

    In the order of their ids. Of options that are pinned; raises SourceError.
    """
    form = Form.parse(pinned.decoding(options))
    where = Where.parse(options, form.plain_schema())
    zoned = (in_zone(file, form.schema, options) for file in files)
    wanted = [
        file for file in zoned if where.may_have(_known(file, where, form), file.rows)
    ]
    footers = read_footers(storage, wanted)
    topic_place = qualified_topic(topic, storage.root)
    return {
        file.uri: LedgerMap(
            Ledger(CONNECTOR, topic_place, number, footer.object, str(of_file)),
            tuple(_extents(footer, of_file, where)),
        )
        for number, file, footer in _numbered(wanted, footers)
        for is_old in [rebase.is_old(footer.metadata)]
        for of_file in [form.of_file(file.values, file.deleted, is_old=is_old)]
    }


def least_id(file: DataFile) -> int:
    """Return an id that a file's is not before, whatever files there are beside it."""
    return file.modified_ms << _HASH_BITS


def _numbered(
    files: Iterable[DataFile], footers: Iterable[Footer]
) -> list[tuple[int, DataFile, Footer]]:
    """Give files numbers, the same whatever files there are beside them.

    The later they were written the greater. Two of one millisecond may, rarely, come by
    one number; then the second gets the next.
    """
    found: dict[int, tuple[DataFile, Footer]] = {}
    for file, footer in sorted(
        zip(files, footers, strict=True), key=lambda pair: pair[0].uri
    ):
        hashed = zlib.crc32(file.uri.encode()) & ((1 << _HASH_BITS) - 1)
        number = least_id(file) | hashed
        while number in found:
            number += 1
        found[number] = file, footer
    return [(number, *found[number]) for number in sorted(found)]


def _extents(footer: Footer, form: Form, where: Where) -> Iterable[Extent]:
    """Yield the extents of a file that may have rows that are wanted."""
    metadata = footer.metadata
    names = _names(footer, form)
    for groups in extents.row_groups(metadata):
        # Bounds of the old calendar mean other days; the log's do not.
        known = [
            {} if form.is_old else bounds(metadata, group, names) for group in groups
        ]
        rows = [metadata.row_group(group).num_rows for group in groups]
        if sum(rows) and any(map(where.may_have, known, rows)):
            columns = frozenset(names.values())
            yield extents.extent(metadata, footer.object.size_bytes, groups, columns)


def _names(footer: Footer, form: Form) -> dict[str, str]:
    """Return the names of columns in a file, by ours. Raises SourceError."""
    stored = footer.metadata.schema.to_arrow_schema()
    try:
        found = [
            (field, find(field, stored, by_id=form.by_id))
            for field in form.schema
            if field.name not in (form.values or {})
        ]
    except pa.ArrowInvalid as error:
        raise SourceError(
            footer.object.uri, expected="the table's columns", found=str(error)
        ) from error
    return {field.name: stored.field(at).name for field, at in found if at is not None}


def _known(file: DataFile, where: Where, form: Form) -> Mapping[str, Bounds]:
    """Return what is known of a file's columns before it is looked at."""
    known = dict(file.bounds)
    for name in where.columns & file.values.keys():
        kind = form.plain_schema().field(name).type
        value = constant(file.values[name], kind, 1)[0].as_py()
        known[name] = Bounds(value, value, file.rows if value is None else 0)
    return known
