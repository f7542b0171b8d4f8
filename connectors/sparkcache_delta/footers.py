"""Footers of Parquet files, read together with the files' identities in one request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcache.errors import SourceError
from sparkcache_delta.footer_types import without_arrow_schema
from sparkcache_delta.parquet_schema import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId
    from sparkcache_delta.parquet_schema import Node
    from sparkcache_delta.table import DataFile

AT_ONCE = 16
"""How many footers are read concurrently."""

_MOST_BYTES = 64 << 10  # nearly all are smaller
_TAIL_BYTES = 8
_MAGIC = b"PAR1"
_UNKNOWN_TYPE = "LogicalType that is not recognized"
_DECLARED = b"org.apache.spark.sql.parquet.row.metadata"


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
    identity, thrift = _read(storage, uri, size_bytes)
    with _translated(identity, thrift):
        return Footer(identity, parsed(thrift))


def read_columns(storage: Storage, uri: str) -> tuple[Sequence[Node], str]:
    """Read the columns of a file, and the schema that Spark declares for them.

    The latter is empty if Spark has not written the file. Raises SourceError.
    """
    identity, thrift = _read(storage, uri, None)
    with _translated(identity, thrift):
        metadata = parsed(thrift).metadata or {}
        return columns(thrift), metadata.get(_DECLARED, b"").decode(errors="replace")


def parsed(thrift: bytes) -> pq.FileMetaData:
    """Return what a footer describes. Raises pa.ArrowException, OSError."""
    tail = thrift + len(thrift).to_bytes(4, "little") + _MAGIC
    return pq.read_metadata(pa.BufferReader(tail))


def _read(storage: Storage, uri: str, size_bytes: int | None) -> tuple[ObjectId, bytes]:
    """Return the identity of a file, and its footer without Arrow's own schema."""
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
    return stored.id, without_arrow_schema(stored.data[-needed:-_TAIL_BYTES])


@contextmanager
def _translated(identity: ObjectId, thrift: bytes) -> Iterator[None]:
    """Translate errors of Arrow into SourceError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        offset = identity.size_bytes - _TAIL_BYTES - len(thrift)
        found = str(error)
        if _UNKNOWN_TYPE in found:
            found += f"; PyArrow {pa.__version__} does not know it, a later one may"
        raise SourceError(
            identity.uri, offset=offset, expected="a Parquet footer", found=found
        ) from error


def require_size(object_id: ObjectId, size_bytes: int | None) -> None:
    """Raise SourceError if a file has another length than the log, if that has one."""
    if size_bytes not in (None, object_id.size_bytes):
        raise SourceError(
            object_id.uri,
            expected=f"{size_bytes} bytes, as recorded in the table's log",
            found=f"{object_id.size_bytes} bytes",
        )
