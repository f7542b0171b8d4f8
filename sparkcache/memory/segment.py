"""Runs in the segments of the ring: the writer's side, and the reader's.

Each side maps a segment once, and finds a run in it by its offset. A reader's mapping
cannot be written to, and the segment cannot shrink under it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import CacheUnavailable
from sparkcache.memory.encoded import decode, translated
from sparkcache.memory.segments import require_fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.connector import DecodedRun
    from sparkcache.memory.encoded import EncodedRun
    from sparkcache.model import Segment, Slot


class MappedSegments:
    """The segments that one reader has got, each mapped once.

    A mapping lives as long as this, or any batch of any run in it.
    """

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}

    def add(self, number: int, fd: int) -> None:
        """Map a segment; the descriptor stays the caller's. Raises CacheUnavailable."""
        with translated(f"segment {number}"):
            require_fixed(fd)
            size_bytes = os.fstat(fd).st_size
            mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
            self._views[number] = memoryview(mapping)

    def read(self, slot: Slot, on_unmap: Callable[[], None]) -> DecodedRun:
        """Return a run; its batches point into the segment, nothing is copied.

        When nobody refers to any of them any more, `on_unmap` is called, also if
        nothing comes of it. Raises CacheUnavailable if there is no such run.
        """
        with translated(f"a run in {slot}"):
            try:
                part = self._part(slot)
            except BaseException:
                on_unmap()
                raise
            weakref.finalize(part, on_unmap).atexit = False
            return decode(pa.py_buffer(part))

    def _part(self, slot: Slot) -> memoryview:
        view = None if slot.segment is None else self._views.get(slot.segment.number)
        end = slot.offset + slot.size_bytes
        if view is None or not 0 <= slot.offset < end <= len(view):
            raise CacheUnavailable(f"the node names {slot}, which there is not")
        return view[slot.offset : end]


class WritableSegments:
    """The segments that a loader has got, each mapped once."""

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}

    def add(self, number: int, fd: int) -> None:
        """Map a segment; the descriptor stays the caller's. Raises OSError."""
        self._views[number] = memoryview(mmap.mmap(fd, os.fstat(fd).st_size))

    def write(self, run: EncodedRun, segment: Segment, offset: int) -> None:
        """Write a run where it was granted room."""
        part = self._views[segment.number][offset : offset + run.size_bytes]
        run.write(pa.FixedSizeBufferWriter(pa.py_buffer(part)))

    def forget(self, numbers: Iterable[int]) -> None:
        """Unmap segments, those that are here."""
        for number in numbers:
            self._views.pop(number, None)
