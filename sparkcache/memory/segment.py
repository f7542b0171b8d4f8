"""Runs in the segments of the ring: the writer's side, and the reader's.

Each side maps a segment once and finds a run in it by its offset. A reader's mapping is
read-only, and the segment cannot shrink under it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import CacheUnavailable
from sparkcache.memory.encoded import decode, unavailable_on_error
from sparkcache.memory.segments import require_fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.connector import DecodedRun
    from sparkcache.memory.encoded import EncodedRun, EncodedSmallRun
    from sparkcache.model import Segment, Slot


class MappedSegments:
    """The segments that one reader has received, each mapped once.

    A mapping lives as long as this object, or any batch of any run in the segment.
    """

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}

    def add(self, number: int, fd: int) -> None:
        """Map a segment; the caller keeps the descriptor. Raises CacheUnavailable."""
        with unavailable_on_error(f"segment {number}"):
            require_fixed(fd)
            size_bytes = os.fstat(fd).st_size
            mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
            self._views[number] = memoryview(mapping)

    def read(self, slot: Slot, on_unmap: Callable[[], None]) -> DecodedRun:
        """Return a run; its batches point into the segment, nothing is copied.

        When none of its batches is referred to any longer, `on_unmap` is called. If
        reading fails, `on_unmap` is called as well. Raises CacheUnavailable if there is
        no such run.
        """
        with unavailable_on_error(f"a run in {slot}"):
            try:
                view = self._view(slot)
            except BaseException:
                on_unmap()
                raise
            weakref.finalize(view, on_unmap).atexit = False
            return decode(pa.py_buffer(view))

    def _view(self, slot: Slot) -> memoryview:
        whole = None if slot.segment is None else self._views.get(slot.segment.number)
        end = slot.offset + slot.size_bytes
        if whole is None or not 0 <= slot.offset < end <= len(whole):
            raise CacheUnavailable(f"the node named {slot}, which is not mapped here")
        return whole[slot.offset : end]


class WritableSegments:
    """The segments that a loader has received, each mapped once."""

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}

    def add(self, number: int, fd: int) -> None:
        """Map a segment; the caller keeps the descriptor. Raises OSError."""
        self._views[number] = memoryview(mmap.mmap(fd, os.fstat(fd).st_size))

    def write(
        self, run: EncodedRun | EncodedSmallRun, segment: Segment, offset: int
    ) -> None:
        """Write a run into the memory that was granted for it."""
        view = self._views[segment.number][offset : offset + run.size_bytes]
        run.write(pa.FixedSizeBufferWriter(pa.py_buffer(view)))

    def forget(self, numbers: Iterable[int]) -> None:
        """Unmap those of the segments that are mapped."""
        for number in numbers:
            self._views.pop(number, None)
