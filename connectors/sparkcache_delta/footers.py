"""Footers of Parquet files, read together with the files' identities in one request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcache.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId
    from sparkcache_delta.table import DataFile

AT_ONCE = 16
"""How many footers are read concurrently."""

_MOST_BYTES = 64 << 10  # nearly all are smaller
_TAIL_BYTES = 8
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Footer:
    """The footer of a file, with the version of the object that it was read from.

    Attributes:
        object: The identity of the file.
        metadata: Its row groups and their columns.

    """

    object: ObjectId
    metadata: pq.FileMetaData


def read_footers(storage: Storage, files: Iterable[DataFile]) -> list[Footer]:
    """Read the footers of files, several concurrently. Raises SourceError."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        footers = [
            pool.submit(read_footer, storage, file.uri, file.size_bytes)
            for file in files
        ]
        try:
            return [footer.result() for footer in footers]
        finally:
            pool.shutdown(cancel_futures=True)


def read_footer(storage: Storage, uri: str, size_bytes: int | None) -> Footer:
    """Read the footer of a file; check its length if known. Raises SourceError."""
    stored = storage.get_end(uri, _MOST_BYTES)
    require_size(stored.id, size_bytes)
    tail = stored.data[-_TAIL_BYTES:]
    needed = int.from_bytes(tail[:4], "little") + _TAIL_BYTES
    if tail[4:] != _MAGIC or needed > stored.id.size_bytes:
        raise SourceError(
            uri,
            offset=max(0, stored.id.size_bytes - _TAIL_BYTES),
            expected="the end of a Parquet file that is not encrypted",
            found=tail.hex(" ") or "nothing",
        )
    if needed > len(stored.data):
        stored = storage.get_end(uri, needed)
    try:
        metadata = pq.read_metadata(pa.BufferReader(stored.data))
    except (pa.ArrowException, OSError) as error:
        offset = stored.id.size_bytes - needed
        raise SourceError(
            uri, offset=offset, expected="a Parquet footer", found=str(error)
        ) from error
    return Footer(stored.id, metadata)


def require_size(object_id: ObjectId, size_bytes: int | None) -> None:
    """Raise SourceError if a file has another length than the log, if that has one."""
    if size_bytes not in (None, object_id.size_bytes):
        raise SourceError(
            object_id.uri,
            expected=f"{size_bytes} bytes, as recorded in the table's log",
            found=f"{object_id.size_bytes} bytes",
        )
