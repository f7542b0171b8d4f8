"""Storage in memory that counts requests, for tests."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId
from sparkcache.storage.one_by_one import get_each, read_each

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sparkcache.connector import ByteRange


class MemoryStream:
    """Byte stream over a range; one read returns at most `chunk_bytes`."""

    def __init__(
        self, stored: StoredObject, offset: int, size_bytes: int, chunk_bytes: int
    ) -> None:
        self._uri = stored.id.uri
        self._data = stored.data
        self._offset = offset
        self._size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._read_bytes = 0

    @property
    def position(self) -> int:
        """Offset in the object of the first byte that the next `read` returns."""
        return self._offset + self._read_bytes

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes; empty at the end."""
        size_bytes = min(
            size_bytes, self._chunk_bytes, self._size_bytes - self._read_bytes
        )
        chunk = self._data[self.position : self.position + size_bytes]
        if size_bytes > 0 and not chunk and self._read_bytes < self._size_bytes:
            raise SourceError(
                self._uri,
                offset=self.position,
                expected=f"{self._size_bytes - self._read_bytes} bytes more",
                found="the end of the object",
            )
        self._read_bytes += len(chunk)
        return chunk

    def close(self) -> None:
        """End the stream; the remaining bytes are not read."""
        self._size_bytes = self._read_bytes


@dataclass(slots=True)
class MemoryStorage:
    """Storage of objects by name, below `root`.

    Attributes:
        root: The URI that all names are relative to.
        chunk_bytes: The most that one `read` of a stream returns.
        requests: How often `list`, `listed`, `get` and `open` were called.
        bytes_opened: Total size of the ranges that were opened.

    """

    root: str = "memory://bucket"
    chunk_bytes: int = 1 << 30
    requests: Counter[str] = field(default_factory=Counter)
    bytes_opened: int = 0
    _objects: dict[str, StoredObject] = field(default_factory=dict)
    _remembered: dict[tuple[str, ObjectId], bytes] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"MemoryStorage({self.root}, {len(self._objects)} objects)"

    def put(
        self,
        name: str,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
        *,
        modified_ms: int | None = None,
    ) -> ObjectId:
        """Store an object, replacing any object with the same name.

        `modified_ms` is when it was written, in milliseconds since 1970; None is now.
        """
        content = repr(sorted((metadata or {}).items())).encode() + data
        version = hashlib.blake2b(content, digest_size=8).hexdigest()
        object_id = ObjectId(f"{self.root}/{name}", len(data), version)
        if modified_ms is None:
            modified_ms = time.time_ns() // 10**6
        stored = StoredObject(object_id, metadata or {}, data, modified_ms)
        self._objects[object_id.uri] = stored
        return object_id

    def remove(self, name: str) -> None:
        """Remove an existing object."""
        del self._objects[f"{self.root}/{name}"]

    def list(self, cuts: Sequence[str] = ()) -> Iterator[ObjectId]:  # noqa: ARG002
        """Yield every object, ordered by name."""
        self.requests["list"] += 1
        yield from [stored.id for _, stored in sorted(self._objects.items())]

    def listed(self, uris: Collection[str]) -> dict[str, ObjectId]:
        """Return the identities of those objects that exist, by URI."""
        self.requests["listed"] += 1
        return {uri: self._objects[uri].id for uri in uris if uri in self._objects}

    def get(self, uri: str) -> StoredObject:
        """Read a whole object."""
        self.requests["get"] += 1
        if uri not in self._objects:
            raise SourceError(uri, expected="an object", found="none")
        return self._objects[uri]

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        """Read the last bytes of an object."""
        stored = self.get(uri)
        begin = max(0, len(stored.data) - size_bytes)
        return replace(stored, data=stored.data[begin:])

    def get_many(self, uris: Sequence[str]) -> Iterator[StoredObject | SourceError]:
        """Read whole objects, one after another."""
        return get_each(self, uris)

    def read_many(self, ranges: Sequence[ByteRange]) -> Iterator[bytes | SourceError]:
        """Read ranges of objects, one after another."""
        return read_each(self, ranges)

    def recall(
        self,
        kind: str,
        ids: Sequence[ObjectId],
    ) -> Sequence[bytes | None]:
        """Return what this storage was given to remember."""
        return [self._remembered.get((kind, each)) for each in ids]

    def remember(self, kind: str, records: Sequence[tuple[ObjectId, bytes]]) -> None:
        """Keep records as long as the storage is there."""
        self._remembered |= {(kind, each): record for each, record in records}

    def access(self) -> Mapping[str, str]:
        """Return no settings: no other library can read it."""
        return {}

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> MemoryStream:
        """Read a range of exactly this version of an object, if it has a version."""
        if size_bytes == 0:
            empty = StoredObject(object_id, {}, b"", 0)
            return MemoryStream(empty, offset, 0, self.chunk_bytes)
        self.requests["open"] += 1
        self.bytes_opened += size_bytes
        stored = self._objects.get(object_id.uri)
        if stored is None or (object_id.version and stored.id != object_id):
            raise SourceError(
                object_id.uri,
                expected=f"version {object_id.version}, as planned",
                found=f"version {stored.id.version}: it was overwritten"
                if stored
                else "none with this name",
            )
        return MemoryStream(stored, offset, size_bytes, self.chunk_bytes)
