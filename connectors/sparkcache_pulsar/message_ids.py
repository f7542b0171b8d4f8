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
    rows = len(entry)
    if isinstance(ledger, int):
        parts = [_constant(_LEDGER, ledger, rows)]
    else:
        parts = [_varints(_LEDGER, ledger)]
    parts.append(_varints(_ENTRY, entry))
    if partition is not None:
        parts.append(_constant(_PARTITION, partition, rows))
    index, used = _varints(_BATCH_INDEX, batch_index.clip(0))
    parts.append((index, used & (batch_index >= 0)[:, None]))
    parts.append(_varints(_BATCH_SIZE, batch_size))
    data = np.concatenate([bytes_ for bytes_, _ in parts], axis=1)
    used = np.concatenate([used for _, used in parts], axis=1)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[used])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def chunked_message_id(first: bytes, last: bytes) -> bytes:
    """Return the id of a chunked message from the ids of its first and last chunk."""
    return b"".join((last, bytes((_FIRST_CHUNK, len(first))), first))


def _constant(tag: int, value: int, rows: int) -> tuple[Bytes, Bools]:
    data, used = _varints(tag, np.array([value]))
    return np.repeat(data, rows, axis=0), np.repeat(used, rows, axis=0)


def _varints(tag: int, values: Ints) -> tuple[Bytes, Bools]:
    """Return the bytes of a field, a row per value, and which bytes are used."""
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    shifts = 7 * np.arange(width)
    groups = values[:, None] >> shifts
    data = np.full((len(values), width + 1), tag, np.uint8)
    data[:, 1:] = groups & 0x7F
    data[:, 1:-1] |= (groups[:, 1:] > 0).astype(np.uint8) << 7
    used = np.ones((len(values), width + 1), np.bool_)
    used[:, 2:] = groups[:, 1:] > 0
    return data, used
