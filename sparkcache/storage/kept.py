"""What planning has read of objects that do not change, on the driver's disk.

Records are kept by what they are of and by the identity of the object, those of one
root in one folder. Each call of `remember` writes one file there, under a name of its
own and never again, so that any number of processes may read and write at once. A file
that is damaged is removed, and what was in it is read again from the storage.

Nothing here ever fails a plan.
"""

from __future__ import annotations

import logging
import os
import stat
import uuid
import zlib
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.model import ObjectId

_MAGIC = b"sparkcache kept 1\n"
_CHECKSUM_BYTES = 16
_KEY_BYTES = 16
_MOST_FILES = 16  # in a folder: more are made into one
_SUFFIX = ".kept"
_decoder = msgspec.msgpack.Decoder(tuple[bytes, list[bytes]])
_log = logging.getLogger(__name__)


class Kept:
    """Records of the objects below one root.

    Args:
        root: The root, a URI.
        path: The directory; empty for the user's own.
        most_bytes: The most that all files in the directory may have; 0 for none.

    """

    def __init__(self, root: str, path: str | None, most_bytes: int) -> None:
        self._root = root
        self._path = path
        self._most_bytes = most_bytes

    def __repr__(self) -> str:
        return f"Kept({self._root}, at most {self._most_bytes} bytes)"

    def recall(self, kind: str, ids: Sequence[ObjectId]) -> Sequence[bytes | None]:
        """Return the record of each object; None if it is not there any more."""
        records: dict[bytes, bytes] = {}
        try:
            if ids and self._most_bytes:
                folder = self._folder(kind)
                files = _files(folder)
                for file in files:
                    records |= _read(file)
                if len(files) > _MOST_FILES:
                    _write(folder, records)
                    _remove(files)
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
            _log.debug("%s: not kept: %s", self._root, error)
        if not records:
            return [None] * len(ids)
        return [records.get(_key(each)) for each in ids]

    def remember(self, kind: str, records: Sequence[tuple[ObjectId, bytes]]) -> None:
        """Write records; files that were not used for the longest time make room."""
        if not (records and self._most_bytes):
            return
        try:
            folder = self._folder(kind)
            _write(folder, {_key(each): record for each, record in records})
            self._make_room(folder.parent)
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
            _log.debug("%s: not kept: %s", self._root, error)

    def _folder(self, kind: str) -> Path:
        """Return the folder of a kind of records. Raises OSError, RuntimeError."""
        top = Path(self._path) if self._path else _own_directory()
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = top.stat()
        if status.st_uid != os.geteuid() or status.st_mode & (
            stat.S_IRWXG | stat.S_IRWXO
        ):
            raise PermissionError(f"{top} must belong to this user alone (mode 0700)")
        name = blake2b(f"{kind}\0{self._root}".encode(), digest_size=16).hexdigest()
        folder = top / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _make_room(self, top: Path) -> None:
        """Remove files, the least recently used first, until the rest may stay."""
        sizes = []
        for file in top.glob(f"*/*{_SUFFIX}"):
            with suppress(FileNotFoundError):  # another process makes room too
                status = file.stat()
                sizes.append((status.st_mtime_ns, status.st_size, file))
        total_bytes = sum(size_bytes for _, size_bytes, _ in sizes)
        for _, size_bytes, file in sorted(sizes):
            if total_bytes <= self._most_bytes:
                return
            _remove([file])
            total_bytes -= size_bytes


def _own_directory() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if caches else Path.home() / ".cache") / "sparkcache"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))


def _key(object_id: ObjectId) -> bytes:
    text = f"{object_id.uri}\0{object_id.version}\0{object_id.size_bytes}"
    return blake2b(text.encode(), digest_size=_KEY_BYTES).digest()


def _read(file: Path) -> dict[bytes, bytes]:
    """Return the records of a file, which counts as used; none if it is damaged."""
    try:
        records = _records(file.read_bytes())
        os.utime(file)
    except FileNotFoundError:  # another process has made room
        return {}
    except (OSError, ValueError, zlib.error, msgspec.DecodeError) as error:
        _log.debug("removing %s: %s", file, error)
        _remove([file])
        return {}
    return records


def _records(data: bytes) -> dict[bytes, bytes]:
    """Return the records of a file's bytes. Raises an error if they are damaged."""
    begin = len(_MAGIC) + _CHECKSUM_BYTES
    packed = data[begin:]
    if data[:begin] != _MAGIC + _checksum(packed):
        raise ValueError("damaged")
    keys, records = _decoder.decode(zlib.decompress(packed))
    return dict(zip(_each_key(keys), records, strict=True))


def _each_key(keys: bytes) -> Iterator[bytes]:
    return (keys[at : at + _KEY_BYTES] for at in range(0, len(keys), _KEY_BYTES))


def _write(folder: Path, records: Mapping[bytes, bytes]) -> None:
    """Write a file of records, which is there as a whole or not at all."""
    contents = b"".join(records), list(records.values())
    packed = zlib.compress(msgspec.msgpack.encode(contents), 1)
    name = uuid.uuid4().hex
    unfinished = folder / f"{name}.new"
    try:
        unfinished.write_bytes(_MAGIC + _checksum(packed) + packed)
        unfinished.rename(folder / f"{name}{_SUFFIX}")
    except OSError:
        _remove([unfinished])
        raise


def _remove(files: Sequence[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _checksum(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_CHECKSUM_BYTES).digest()
