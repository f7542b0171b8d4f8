"""Objects in a local directory; a version is the file's time and inode."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.storage.traffic import Traffic


class LocalStorage:
    """Reads files below a directory. There is no user metadata."""

    def __init__(self, root: str, traffic: Traffic) -> None:
        self.root = root
        self._traffic = traffic

    def list(self) -> Iterator[ObjectId]:
        """Yield every file below the root, in the order of their names."""
        top = _path(self.root)
        if not top.is_dir():
            raise SourceError(
                self.root, expected="a directory", found="none of that name"
            )
        for path in sorted(path for path in top.rglob("*") if path.is_file()):
            yield _object_id(path.as_uri(), path.stat())

    def get(self, uri: str) -> StoredObject:
        """Read a whole file."""
        try:
            with _path(uri).open("rb") as file:
                object_id = _object_id(uri, os.fstat(file.fileno()))
                data = file.read()
        except OSError as error:
            raise _translated(uri, error) from error
        self._traffic.gets += 1
        self._traffic.received_bytes += len(data)
        return StoredObject(object_id, {}, data)

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> _FileRange:
        """Read a range of exactly this version of a file."""
        try:
            fd = os.open(_path(object_id.uri), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _translated(object_id.uri, error) from error
        stream = _FileRange(fd, object_id, offset, offset + size_bytes, self._traffic)
        found = _object_id(object_id.uri, os.fstat(fd))
        if found != object_id:
            raise SourceError(
                object_id.uri,
                expected=f"version {object_id.version}, as planned",
                found=f"version {found.version}: it was overwritten",
            )
        self._traffic.gets += 1
        return stream


class _FileRange:
    """A range of an open file; closed with its last reference."""

    def __init__(
        self, fd: int, object_id: ObjectId, position: int, end: int, traffic: Traffic
    ) -> None:
        self._file = os.fdopen(fd, "rb", buffering=0)
        self._object_id = object_id
        self._end = end
        self._traffic = traffic
        self.position = position

    def read(self, size_bytes: int) -> bytes:
        wanted = min(size_bytes, self._end - self.position)
        try:
            data = os.pread(self._file.fileno(), max(wanted, 0), self.position)
        except OSError as error:
            raise _translated(self._object_id.uri, error) from error
        if wanted > 0 and not data:
            raise SourceError(
                self._object_id.uri,
                offset=self.position,
                expected=f"{self._object_id.size_bytes} bytes",
                found="the end of the file",
            )
        self.position += len(data)
        self._traffic.received_bytes += len(data)
        return data

    def close(self) -> None:
        self._file.close()


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def _object_id(uri: str, status: os.stat_result) -> ObjectId:
    version = f"{status.st_mtime_ns:x}-{status.st_ino:x}"
    return ObjectId(uri, status.st_size, version)


def _translated(uri: str, error: OSError) -> SourceError:
    found = "no such file" if isinstance(error, FileNotFoundError) else str(error)
    return SourceError(uri, expected="a readable file", found=found)
