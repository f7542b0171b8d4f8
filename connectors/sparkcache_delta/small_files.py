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
from sparkcache_delta import decoded_size, rebase
from sparkcache_delta.extents import LEAST_BYTES, LEAST_GAP_BYTES, FileExtent
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

MOST_ROWS = 16 << 10
"""Of a file with texts, bytes or lists in more rows, the footer is read.

It tells how large they become when they are decoded; the log does not.
"""

_log = logging.getLogger(__name__)


def extent(file: DataFile, row_bytes: int) -> FileExtent:
    """Return the extent of a file with a known length, and with a row at least.

    `row_bytes` is what a decoded row has without its texts, bytes and lists.
    """
    assert file.size_bytes is not None
    assert file.rows
    decoded_bytes = file.rows * row_bytes
    return FileExtent(0, file.rows - 1, 0, file.size_bytes, (), decoded_bytes)


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
    kinds = [field.type for field in table_schema.columns]
    if len(files) <= MANY or not all(map(_is_plain, kinds)):
        return {}
    most_bytes = LEAST_BYTES - 1 if reads_all_columns else LEAST_GAP_BYTES
    is_variable = any(
        decoded_size.is_variable(field.type)
        for field in table_schema.columns
        if field.name not in files[0].values
    )
    small = {
        file.uri: file
        for file in files
        if file.rows
        and not (is_variable and file.rows > MOST_ROWS)
        and file.size_bytes is not None
        and file.size_bytes <= most_bytes
        and file.is_modern
        and all(_is_bounded(file, name) for name in where.columns)
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


def _is_bounded(file: DataFile, name: str) -> bool:
    """Return whether a footer would not tell more of a column's values than the log."""
    if name in file.values:
        return True
    if name not in file.bounds:
        return False
    low, high, nulls = file.bounds[name]
    is_null = nulls is not None and nulls == file.rows
    return is_null or (low is not None and high is not None and nulls is not None)


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether a type has no dates within it, whose bounds are in no log.

    Neither may it have a map: planning refuses those whose keys are optional in a file.
    """
    if pa.types.is_map(kind):
        return False
    children = [kind.field(index).type for index in range(kind.num_fields)]
    return all(_is_plain(child) for child in children) and not any(
        map(rebase.has_calendar, children)
    )
