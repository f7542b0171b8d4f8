"""Memory of this process that is free, and not returned to the kernel yet."""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa


def return_freed_memory() -> None:
    """Return what Arrow and glibc keep: as much as was ever needed, though it is free.

    What is in cycles is freed first, such as responses and what was read of them.
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc only
        trim(0)
