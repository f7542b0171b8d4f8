"""Small data files, which a scan of many files plans without reading their footers.

A footer costs a request for each file. But a small file is one extent, whatever its row
groups are, and the log has its length and its number of rows. Its identity is in a
listing, a thousand to a request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import SourceError
from sparkcache.model import Extent
from sparkcache_delta import rebase
from sparkcache_delta.extents import LEAST_BYTES, LEAST_GAP_BYTES
from sparkcache_delta.footers import require_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId
    from sparkcache_delta.file_schema import FileSchema
    from sparkcache_delta.table import DataFile
    from sparkcache_delta.where import Where

MANY = 256
"""A scan of more files than this does not read the footers of small ones."""

_log = logging.getLogger(__name__)


def extent(file: DataFile) -> Extent:
    """Return the extent of a file with a known length, and with a row at least."""
    assert file.size_bytes is not None
    assert file.rows
    return Extent(0, file.rows - 1, 0, file.size_bytes)


def identities(
    storage: Storage,
    files: Sequence[DataFile],
    table_schema: FileSchema,
    where: Where,
    *,
    reads_all_columns: bool,
) -> dict[str, ObjectId]:
    """Return the identities of the files that need no footer, by URI.

    Empty if there are few files. Raises SourceError if a file has another length than
    in the log.
    """
    if len(files) <= MANY:
        return {}
    most_bytes = LEAST_BYTES - 1 if reads_all_columns else LEAST_GAP_BYTES
    is_known = _Known(table_schema, where)
    small = {
        file.uri: file
        for file in files
        if file.rows
        and file.size_bytes is not None
        and file.size_bytes <= most_bytes
        and is_known(file)
    }
    if len(small) <= MANY:
        return {}
    try:
        found = storage.listed(small)
    except SourceError as error:  # a user may be allowed to read, but not to list
        _log.info("footers are read, since listing failed: %s", error)
        return {}
    for uri, object_id in found.items():
        require_size(object_id, small[uri].size_bytes)
    return found


class _Known:
    """Whether the log tells of a file what its footer would tell.

    That is: whether rows may match, and that no values may be in the legacy calendar.
    """

    def __init__(self, table_schema: FileSchema, where: Where) -> None:
        self._compared = where.columns
        self._dates = []
        self._is_supported = True
        for field in table_schema.columns:
            if rebase.has_calendar(field.type):
                self._dates.append(field)
            elif pa.types.is_nested(field.type):
                self._is_supported &= _is_plain(field.type)

    def __call__(self, file: DataFile) -> bool:
        return (
            self._is_supported
            and all(self._is_bounded(file, name) for name in self._compared)
            and all(
                field.name in file.values or self._is_modern(file, field)
                for field in self._dates
            )
        )

    def _is_bounded(self, file: DataFile, name: str) -> bool:
        if name in file.values:
            return True
        if name not in file.bounds:
            return False
        low, high, nulls = file.bounds[name]
        is_null = nulls is not None and nulls == file.rows
        return is_null or (low is not None and high is not None and nulls is not None)

    def _is_modern(self, file: DataFile, field: pa.Field) -> bool:
        if field.name not in file.bounds:
            return False
        low, _, nulls = file.bounds[field.name]
        if nulls is not None and nulls == file.rows:
            return True
        return low is not None and rebase.is_modern(low)


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether a nested type has no dates, whose bounds no log has, and no map.

    Planning refuses maps whose keys are optional in the file.
    """
    if rebase.has_calendar(kind) or pa.types.is_map(kind):
        return False
    children = (kind.field(index) for index in range(kind.num_fields))
    return all(_is_plain(child.type) for child in children)
