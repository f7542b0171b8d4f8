"""A storage that is a dictionary, and counts what is asked of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class MemoryStream:
    """The bytes of a range, `chunk_bytes` at most at a time."""

    def __init__(
        self, stored: StoredObject, offset: int, size_bytes: int, chunk_bytes: int
    ) -> None:
        self._uri = stored.id.uri
        self._data = stored.data
        self._offset = offset
        self._size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._at = 0

    @property
    def position(self) -> int:
        """Offset in the object of the byte that the next `read` begins with."""
        return self._offset + self._at

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, none at the end."""
        size_bytes = min(size_bytes, self._chunk_bytes, self._size_bytes - self._at)
        chunk = self._data[self.position : self.position + size_bytes]
        if size_bytes > 0 and not chunk and self._at < self._size_bytes:
            raise SourceError(
                self._uri,
                offset=self.position,
                expected=f"{self._size_bytes - self._at} bytes more",
                found="the end of the object",
            )
        self._at += len(chunk)
        return chunk

    def close(self) -> None:
        """Give up the rest."""
        self._size_bytes = self._at


@dataclass(slots=True)
class MemoryStorage:
    """Objects by name, below `root`.

    Attributes:
        root: The URI that all names are relative to.
        chunk_bytes: The most that one `read` of a stream returns.
        requests: How often `list`, `get` and `open` were called.
        bytes_opened: Total size of the ranges that were opened.

    """

    root: str = "memory://bucket"
    chunk_bytes: int = 1 << 30
    requests: Counter[str] = field(default_factory=Counter)
    bytes_opened: int = 0
    _objects: dict[str, StoredObject] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"MemoryStorage({self.root}, {len(self._objects)} objects)"

    def put(
        self, name: str, data: bytes, metadata: Mapping[str, str] | None = None
    ) -> ObjectId:
        """Store an object, in the place of what had its name."""
        content = repr(sorted((metadata or {}).items())).encode() + data
        version = hashlib.blake2b(content, digest_size=8).hexdigest()
        object_id = ObjectId(f"{self.root}/{name}", len(data), version)
        self._objects[object_id.uri] = StoredObject(object_id, metadata or {}, data)
        return object_id

    def remove(self, name: str) -> None:
        """Remove an object that is there."""
        del self._objects[f"{self.root}/{name}"]

    def list(self) -> Iterator[ObjectId]:
        """Yield every object, in the order of their names."""
        self.requests["list"] += 1
        yield from [stored.id for _, stored in sorted(self._objects.items())]

    def get(self, uri: str) -> StoredObject:
        """Read a whole object."""
        self.requests["get"] += 1
        if uri not in self._objects:
            raise SourceError(uri, expected="an object", found="none")
        return self._objects[uri]

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        """Read the last bytes of an object."""
        found = self.get(uri)
        begin = max(0, len(found.data) - size_bytes)
        return StoredObject(found.id, found.metadata, found.data[begin:])

    def access(self) -> Mapping[str, str]:
        """Return nothing: nobody else can read it."""
        return {}

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> MemoryStream:
        """Read a range of exactly this version of an object, if it has one."""
        if size_bytes == 0:
            nothing = StoredObject(object_id, {}, b"")
            return MemoryStream(nothing, offset, 0, self.chunk_bytes)
        self.requests["open"] += 1
        self.bytes_opened += size_bytes
        found = self._objects.get(object_id.uri)
        if found is None or (object_id.version and found.id != object_id):
            raise SourceError(
                object_id.uri,
                expected=f"version {object_id.version}, as planned",
                found=f"version {found.id.version}: it was overwritten"
                if found
                else "none of that name",
            )
        return MemoryStream(found, offset, size_bytes, self.chunk_bytes)
