"""The memory of a ring: its segments, which the node creates and others map.

A segment that the ring drops is emptied at once, which frees its memory even while
others map it; nobody reads it by then. When the node ends, tasks may still read
segments, so their memory is freed with the last mapping.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from sparkcache.errors import CacheUnavailable
from sparkcache.memory.memfd import create_memfd, has_seals

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkcache.model import Segment

_log = logging.getLogger(__name__)

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2


class _Segment(NamedTuple):
    writable: int
    readable: int
    size_bytes: int


class Segments:
    """The segments of a ring, each a memfd that is created when it is first needed."""

    def __init__(self) -> None:
        self._segments: dict[int, _Segment] = {}
        self._known_by: WeakKeyDictionary[object, set[int]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Segments({len(self)}, {self.size_bytes} bytes in all)"

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def numbers(self) -> Collection[int]:
        """Numbers of the segments that exist."""
        return self._segments.keys()

    @property
    def size_bytes(self) -> int:
        """Size of all segments together, written to or not."""
        return sum(segment.size_bytes for segment in self._segments.values())

    def __contains__(self, segment: Segment) -> bool:
        return segment.number in self._segments

    def create(self, segment: Segment) -> None:
        """Create a segment. Raises OSError."""
        self._segments[segment.number] = _create(segment.size_bytes)

    def to_write(self, segment: Segment, writer: object) -> int | None:
        """Return the descriptor for writing a segment; None if the writer has it."""
        if not self._is_first_use(segment, writer):
            return None
        return self._segments[segment.number].writable

    def to_read(self, segment: Segment, reader: object) -> int | None:
        """Return the descriptor for reading a segment; None if the reader has it."""
        if not self._is_first_use(segment, reader):
            return None
        return self._segments[segment.number].readable

    def is_known(self, segment: Segment, peer: object) -> bool:
        """Return whether a peer has received a segment."""
        return segment.number in self._known_by.get(peer, ())

    def keep_only(self, numbers: Collection[int]) -> tuple[int, ...]:
        """Free all other segments; return their numbers, which may be used again."""
        freed = tuple(number for number in self._segments if number not in numbers)
        for number in freed:
            segment = self._segments.pop(number)
            _punch_out(segment)
            _close(segment)
        if freed:
            for known in self._known_by.values():
                known.difference_update(freed)
        return freed

    def close(self) -> None:
        """Close all descriptors; readers keep their mappings."""
        for segment in self._segments.values():
            _close(segment)
        self._segments.clear()

    def _is_first_use(self, segment: Segment, peer: object) -> bool:
        """Record that a peer gets a segment; return whether it is the first time."""
        known = self._known_by.setdefault(peer, set())
        if segment.number in known:
            return False
        known.add(segment.number)
        return True


def require_fixed(fd: int) -> None:
    """Raise CacheUnavailable unless the size of a descriptor's memory is sealed."""
    if not has_seals(fd, _SEALS):
        raise CacheUnavailable("the node sent a descriptor of memory that may shrink")


def _create(size_bytes: int) -> _Segment:
    fd = create_memfd()
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except BaseException:
        os.close(fd)
        raise
    return _Segment(fd, readable, size_bytes)


def _punch_out(segment: _Segment) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
    whole = ctypes.c_int64(0), ctypes.c_int64(segment.size_bytes)
    if libc.fallocate(segment.writable, mode, *whole):
        _log.warning(
            "could not free the memory of a segment: %s",
            os.strerror(ctypes.get_errno()),
        )


def _close(segment: _Segment) -> None:
    os.close(segment.writable)
    os.close(segment.readable)
