"""Objects in a local directory; a version is the file's modification time and inode."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId
from sparkcache.storage.empty import EmptyRange
from sparkcache.storage.one_by_one import get_each, read_each

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sparkcache.connector import ByteRange, ByteStream
    from sparkcache.storage.traffic import Traffic

_SCHEME = "file://"


class LocalStorage:
    """Reads files below a directory. Files have no user metadata."""

    def __init__(self, root: str, traffic: Traffic) -> None:
        self.root = root
        self._traffic = traffic

    def __repr__(self) -> str:
        return f"LocalStorage({self.root})"

    def list(self, cuts: Sequence[str] = ()) -> Iterator[ObjectId]:  # noqa: ARG002
        """Yield every file below the root, ordered by name."""
        with _translated(self.root, expected="a directory"):
            for path in sorted(_files(str(_path(self.root)))):
                try:
                    status = Path(path).stat()
                except FileNotFoundError:  # removed since it was listed
                    continue
                yield _object_id(_SCHEME + path, status)

    def listed(self, uris: Collection[str]) -> dict[str, ObjectId]:
        """Return the identities of those files that exist, by URI."""
        found = {}
        for uri in uris:
            with _translated(uri), suppress(FileNotFoundError, NotADirectoryError):
                found[uri] = _object_id(uri, _path(uri).stat())
        return found

    def get(self, uri: str) -> StoredObject:
        """Read a whole file."""
        with _translated(uri), _path(uri).open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
        self._traffic.add(gets=1, received_bytes=len(data))
        return _stored_object(uri, status, data)

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        """Read the last bytes of a file."""
        with _translated(uri), _path(uri).open("rb") as file:
            status = os.fstat(file.fileno())
            file.seek(max(0, status.st_size - size_bytes))
            data = file.read()
        self._traffic.add(gets=1, received_bytes=len(data))
        return _stored_object(uri, status, data)

    def get_many(self, uris: Sequence[str]) -> Iterator[StoredObject | SourceError]:
        """Read whole files, one after another."""
        return get_each(self, uris)

    def read_many(self, ranges: Sequence[ByteRange]) -> Iterator[bytes | SourceError]:
        """Read ranges of files, one after another."""
        return read_each(self, ranges)

    def recall(
        self,
        kind: str,  # noqa: ARG002
        ids: Sequence[ObjectId],
    ) -> Sequence[bytes | None]:
        """Return nothing: to read a file takes no longer."""
        return [None] * len(ids)

    def remember(self, kind: str, records: Sequence[tuple[ObjectId, bytes]]) -> None:
        """Keep nothing."""

    def access(self) -> Mapping[str, str]:
        """Return no settings: a path is enough to read."""
        return {}

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> ByteStream:
        """Read a range of exactly this version of a file, if it has a version."""
        if size_bytes == 0:
            return EmptyRange(offset)
        stream = FileRange(object_id, offset, offset + size_bytes, self._traffic)
        self._traffic.add(gets=1)
        return stream


class FileRange:
    """Byte stream over a range of a file, which stays open until `close`."""

    def __init__(
        self, object_id: ObjectId, position: int, end: int, traffic: Traffic
    ) -> None:
        self._object_id = object_id
        self._end = end
        self._traffic = traffic
        self.position = position
        with _translated(object_id.uri):
            self._file = _path(object_id.uri).open("rb", buffering=0)
        found = _object_id(object_id.uri, os.fstat(self._file.fileno()))
        if object_id.version and found != object_id:
            self._file.close()
            raise SourceError(
                object_id.uri,
                expected=f"version {object_id.version}, as planned",
                found=f"version {found.version}: it was overwritten",
            )

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, at most `size_bytes`; empty only at the end."""
        wanted = min(size_bytes, self._end - self.position)
        if wanted <= 0:
            return b""
        with _translated(self._object_id.uri):
            data = os.pread(self._file.fileno(), wanted, self.position)
        if not data:
            raise SourceError(
                self._object_id.uri,
                offset=self.position,
                expected=f"{self._end - self.position} bytes more",
                found="the end of the file",
            )
        self.position += len(data)
        self._traffic.add(received_bytes=len(data))
        return data

    def close(self) -> None:
        """Close the file; the remaining bytes are not read."""
        self._end = self.position
        self._file.close()


def _files(top: str) -> Iterator[str]:
    """Yield the paths of all files below a directory. Raises OSError."""
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):  # a link may form a cycle
                yield from _files(entry.path)
            elif entry.is_file():
                yield entry.path


def _path(uri: str) -> Path:
    """Return the path: the text after the scheme, taken literally."""
    return Path(uri.removeprefix(_SCHEME) or "/")


def _object_id(uri: str, status: os.stat_result) -> ObjectId:
    version = f"{status.st_mtime_ns:x}-{status.st_ino:x}"
    return ObjectId(uri, status.st_size, version)


def _stored_object(uri: str, status: os.stat_result, data: bytes) -> StoredObject:
    return StoredObject(_object_id(uri, status), {}, data, status.st_mtime_ns // 10**6)


@contextmanager
def _translated(uri: str, *, expected: str = "a readable file") -> Iterator[None]:
    """Convert an OSError into a SourceError about this file."""
    try:
        yield
    except OSError as error:
        raise SourceError(uri, expected=expected, found=str(error)) from error
