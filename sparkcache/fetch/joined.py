"""The bytes of an extent that is stored in several ranges of an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream, Storage
    from sparkcache.model import ObjectId


class JoinedRanges:
    """Several ranges of an object, read one after another; see `ByteStream`.

    The first range is requested at once, each further range when the previous one ends.
    """

    def __init__(
        self,
        storage: Storage,
        object_id: ObjectId,
        ranges: tuple[tuple[int, int], ...],
    ) -> None:
        self._storage = storage
        self._object_id = object_id
        self._remaining = list(ranges)
        self._stream = self._open_next()

    def __repr__(self) -> str:
        return (
            f"JoinedRanges({self._stream!r}, {len(self._remaining)} ranges remaining)"
        )

    @property
    def position(self) -> int:
        """Offset in the object of the next byte that `read` returns."""
        return self._stream.position

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes: at most `size_bytes`, none only at the end."""
        data = self._stream.read(size_bytes)
        while not data and size_bytes > 0 and self._remaining:
            self._stream.close()
            self._stream = self._open_next()
            data = self._stream.read(size_bytes)
        return data

    def close(self) -> None:
        """Close the stream and drop the remaining ranges."""
        self._remaining.clear()
        self._stream.close()

    def _open_next(self) -> ByteStream:
        return self._storage.open(self._object_id, *self._remaining.pop(0))
