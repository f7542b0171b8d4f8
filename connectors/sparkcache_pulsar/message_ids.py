"""Message ids as bytes, as `MessageId.toByteArray` of Pulsar's Java client returns.

    1 ledger id, 2 entry id, 3 partition, 4 batch index, 6 batch size,
    7 id of the first chunk

The id of a chunked message is that of its last chunk. Partition and batch index are
left out if absent; the batch size is always included, 0 without a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.arrays import Bools, Bytes, Ints

_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _BATCH_SIZE = 8, 16, 24, 32, 48  # tags
_FIRST_CHUNK = 58


def message_ids(
    ledger: int | Ints,
    entry: Ints,
    partition: int | None,
    batch_index: Ints,
    batch_size: Ints,
) -> pa.Array:
    """Return the id of each message; a batch index of -1 means no batch.

    `ledger` is that of all messages, or of each.
    """
    rows, indexed = len(entry), batch_index >= 0
    columns = [*_field(_LEDGER, np.atleast_1d(ledger)), *_field(_ENTRY, entry)]
    if partition is not None:
        columns += _field(_PARTITION, np.array([partition]))
    if indexed.any():
        columns += _field(_BATCH_INDEX, batch_index.clip(0), indexed)
    columns += _field(_BATCH_SIZE, batch_size)
    data = np.empty((rows, len(columns)), np.uint8)
    offsets = np.zeros(rows + 1, np.int32)
    offsets[1:] = len(columns)
    for number, (values, _) in enumerate(columns):
        data[:, number] = values
    if any(used is not None for _, used in columns):
        used = np.ones(data.shape, np.bool_)
        for number, (_, some) in enumerate(columns):
            if some is not None:
                used[:, number] = some
        data = data[used]
        offsets[1:] = np.count_nonzero(used, axis=1)
    np.cumsum(offsets, out=offsets)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def chunked_message_id(first: bytes, last: bytes) -> bytes:
    """Return the id of a chunked message from the ids of its first and last chunk."""
    return b"".join((last, bytes((_FIRST_CHUNK, len(first))), first))


def _field(
    tag: int, values: Ints, present: Bools | None = None
) -> Iterator[tuple[Bytes, Bools | None]]:
    """Yield a field's bytes, a column each: one value or one per row, and who has it.

    Numbers are not negative. The second of a pair is None if all rows have the byte.
    """
    present = None if present is None or present.all() else present
    yield np.array([tag], np.uint8), present
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for shift in range(0, max(1, most.bit_length()), 7):
        group = (values >> shift).astype(np.uint8) & np.uint8(0x7F)
        if most >> shift > 0x7F:
            group |= (values >> shift > 0x7F).view(np.uint8) << 7
        used = present
        if shift and least >> shift == 0:
            has_byte = values >> shift > 0
            used = has_byte if present is None else present & has_byte
        yield group, used
