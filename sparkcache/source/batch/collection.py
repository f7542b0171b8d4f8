"""Python's garbage collection, which planning goes without."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage within the block.

    A plan of 300,000 extents consists of millions of objects, none of which is garbage.
    To look at them again and again takes as long as to make them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
