"""The memory of a ring: its segments, which the node creates and others map.

A segment that the ring does without is emptied at once, so that its memory is free
whoever still maps it; nobody reads in it then.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from sparkcache.errors import CacheUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.model import Slot

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
        held_bytes = sum(segment.size_bytes for segment in self._segments.values())
        return f"Segments({len(self._segments)} of {held_bytes} bytes together)"

    def __len__(self) -> int:
        return len(self._segments)

    def create(self, number: int, size_bytes: int) -> None:
        """Create a segment unless it is there. Raises OSError."""
        if number not in self._segments:
            self._segments[number] = _create(size_bytes)

    def for_writer(self, slot: Slot, writer: object) -> int | None:
        """Return what a writer needs to write there; None if it has got it already."""
        return self._segment(slot).writable if self._is_new(slot, writer) else None

    def for_reader(self, slot: Slot, reader: object) -> int | None:
        """Return what a reader needs to read there; None if it has got it already."""
        return self._segment(slot).readable if self._is_new(slot, reader) else None

    def is_known(self, slot: Slot, to: object) -> bool:
        """Tell whether somebody has got the segment that a run lies in."""
        return slot.segment in self._known.get(to, ())

    def discard(self, numbers: Iterable[int]) -> None:
        """Free segments, those that are there."""
        for number in numbers:
            segment = self._segments.pop(number, None)
            if segment is not None:
                _free(segment)

    def close(self) -> None:
        """Free them all."""
        self.discard(list(self._segments))

    def _segment(self, slot: Slot) -> _Segment:
        assert slot.segment is not None, "the run has memory of its own"
        return self._segments[slot.segment]

    def _is_new(self, slot: Slot, to: object) -> bool:
        assert slot.segment is not None, "the run has memory of its own"
        known = self._known.setdefault(to, set())
        if slot.segment in known:
            return False
        known.add(slot.segment)
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


def _free(segment: _Segment) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
    libc.fallocate(
        segment.writable, mode, ctypes.c_int64(0), ctypes.c_int64(segment.size_bytes)
    )
    os.close(segment.writable)
    os.close(segment.readable)
