"""Small record batches joined to larger ones: each costs Spark as much as a large one.

The first rows are not held back. A batch is joined with as many bytes of those after it
as were yielded before, so a reader that leaves early has not waited for many of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SMALL_BYTES = 128 << 10
_JOINED_BYTES = 1 << 20


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, in order; batches that are not small as they are."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = limit_bytes = 0
    for batch in batches:
        size_bytes = batch.nbytes
        if waiting and size_bytes > _SMALL_BYTES:
            yield _one(waiting)
            waiting_bytes = 0
        if size_bytes > _SMALL_BYTES:
            yield batch
            continue
        waiting.append(batch)
        waiting_bytes += size_bytes
        if waiting_bytes >= limit_bytes:
            yield _one(waiting)
            limit_bytes = min(limit_bytes + waiting_bytes, _JOINED_BYTES)
            waiting_bytes = 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches as one, and forget them."""
    if len(batches) == 1:
        return batches.pop()
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    batches.clear()
    return whole
