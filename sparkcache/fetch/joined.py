"""The bytes of an extent that lie in several ranges of an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream, Storage
    from sparkcache.model import ObjectId


class JoinedRanges:
    """Ranges of an object, read one after another; see `ByteStream`.

    The first is asked for at once, each of the others when it is come to.
    """

    def __init__(
        self,
        storage: Storage,
        object_id: ObjectId,
        ranges: tuple[tuple[int, int], ...],
    ) -> None:
        self._storage = storage
        self._object_id = object_id
        self._left = list(ranges)
        self._stream = self._next()

    def __repr__(self) -> str:
        return f"JoinedRanges({self._stream!r}, {len(self._left)} to come)"

    @property
    def position(self) -> int:
        """Offset in the object of the byte that the next `read` begins with."""
        return self._stream.position

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes: at most `size_bytes`, none only at the end."""
        data = self._stream.read(size_bytes)
        while not data and size_bytes > 0 and self._left:
            self._stream.close()
            self._stream = self._next()
            data = self._stream.read(size_bytes)
        return data

    def close(self) -> None:
        """Give up the rest."""
        self._left.clear()
        self._stream.close()

    def _next(self) -> ByteStream:
        return self._storage.open(self._object_id, *self._left.pop(0))
