"""Reading many objects, or many ranges, one after another."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkcache.connector import ByteRange, Storage, StoredObject


def get_each(
    storage: Storage, uris: Iterable[str]
) -> Iterator[StoredObject | SourceError]:
    """Yield whole objects, or what is wrong with them."""
    for uri in uris:
        try:
            yield storage.get(uri)
        except SourceError as error:
            yield error


def read_each(
    storage: Storage, ranges: Iterable[ByteRange]
) -> Iterator[bytes | SourceError]:
    """Yield the bytes of ranges, or what is wrong with them."""
    for wanted in ranges:
        try:
            yield read_range(storage, wanted)
        except SourceError as error:
            yield error


def read_range(storage: Storage, wanted: ByteRange) -> bytes:
    """Return all bytes of a range. Raises SourceError."""
    pieces = []
    with closing(storage.open(*wanted)) as stream:
        while piece := stream.read(wanted.size_bytes):
            pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
