"""The memory of a ring: its segments, which the node creates and others map.

A segment that the ring does without is emptied at once, so that its memory is free
whoever still maps it; nobody reads in it then. When the node ends somebody may, so the
memory goes with the last mapping.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from sparkcache.errors import CacheUnavailable

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
        self._known: WeakKeyDictionary[object, set[int]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Segments({len(self)} of {self.size_bytes} bytes together)"

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def numbers(self) -> Collection[int]:
        """Of the segments that there are."""
        return self._segments.keys()

    @property
    def size_bytes(self) -> int:
        """Of all segments together, whether they were written to or not."""
        return sum(segment.size_bytes for segment in self._segments.values())

    def __contains__(self, segment: Segment) -> bool:
        return segment.number in self._segments

    def create(self, segment: Segment) -> None:
        """Create a segment. Raises OSError."""
        self._segments[segment.number] = _create(segment.size_bytes)

    def to_write(self, segment: Segment, writer: object) -> int | None:
        """Return what a writer needs to write there; None if it has got it already."""
        if not self._meets(segment, writer):
            return None
        return self._segments[segment.number].writable

    def to_read(self, segment: Segment, reader: object) -> int | None:
        """Return what a reader needs to read there; None if it has got it already."""
        if not self._meets(segment, reader):
            return None
        return self._segments[segment.number].readable

    def is_known(self, segment: Segment, to: object) -> bool:
        """Tell whether somebody has got a segment."""
        return segment.number in self._known.get(to, ())

    def keep_only(self, numbers: Collection[int]) -> tuple[int, ...]:
        """Free all others; return their numbers, which may be given anew."""
        gone = tuple(number for number in self._segments if number not in numbers)
        for number in gone:
            segment = self._segments.pop(number)
            _empty(segment)
            _close(segment)
        if gone:
            for known in self._known.values():
                known.difference_update(gone)
        return gone

    def close(self) -> None:
        """Let go of them all; what readers map stays as it is."""
        for segment in self._segments.values():
            _close(segment)
        self._segments.clear()

    def _meets(self, segment: Segment, who: object) -> bool:
        """Tell whether somebody gets a segment for the first time."""
        known = self._known.setdefault(who, set())
        if segment.number in known:
            return False
        known.add(segment.number)
        return True


def require_fixed(fd: int) -> None:
    """Raise CacheUnavailable unless what a descriptor is of can be mapped for good."""
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) != _SEALS:
        raise CacheUnavailable("what the node sent may shrink")


def _create(size_bytes: int) -> _Segment:
    fd = os.memfd_create("sparkcache", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except BaseException:
        os.close(fd)
        raise
    return _Segment(fd, readable, size_bytes)


def _empty(segment: _Segment) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
    whole = ctypes.c_int64(0), ctypes.c_int64(segment.size_bytes)
    if libc.fallocate(segment.writable, mode, *whole):
        _log.warning("a segment was not emptied: %s", os.strerror(ctypes.get_errno()))


def _close(segment: _Segment) -> None:
    os.close(segment.writable)
    os.close(segment.readable)
