"""Rows that are not messages: chunks of larger messages, and ends of transactions.

Their effect on messages depends on other runs, so they are kept unresolved, in rows of
their own. A run that has any, or has messages of transactions, gets two additional
columns; see `Resolver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sparkcache import arrays
from sparkcache_pulsar import entries as fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache_pulsar.entries import Entries
    from sparkcache_pulsar.messages import Messages

CHUNK, OUTCOME = "__chunk", "__outcome"

_CHUNK_TYPE = pa.struct(
    [
        ("uuid", pa.binary()),
        ("number", pa.int64()),
        ("chunks", pa.int64()),
        ("codec", pa.int64()),
        ("decoded_bytes", pa.int64()),
        ("offset", pa.int64()),
        ("data", pa.binary()),
    ]
)
COLUMNS = (pa.field(CHUNK, _CHUNK_TYPE), pa.field(OUTCOME, pa.bool_()))


class Chunk(NamedTuple):
    """A chunk of a message.

    Attributes:
        ledger: Its ledger.
        entry: Its entry.
        message_id: Its message id, as if it were a message.
        sequence_id: The same for all chunks of a message.
        publish_time: When it was sent; None if that is no time. Most clients send all
            chunks of a message with the same time.
        uuid: The same for all chunks of a message.
        number: Its index among the chunks, from 0.
        chunks: Number of chunks of the message.
        codec: Codec of the assembled message.
        decoded_bytes: Size of the decompressed message; 0 if not stated.
        offset: Offset of its entry in the object.
        data: Its bytes; None if its message is a tombstone.

    """

    ledger: int
    entry: int
    message_id: bytes
    sequence_id: int
    publish_time: int | None
    uuid: bytes
    number: int
    chunks: int
    codec: int
    decoded_bytes: int
    offset: int
    data: bytes | None

    @property
    def is_last(self) -> bool:
        """Whether it is the last chunk of its message."""
        return self.number == self.chunks - 1


def has_parts(entries: Entries) -> bool:
    """Return whether any row of a run depends on other runs."""
    in_transaction = entries.metadata.numbers[fields.TXN_MOST_BITS].present
    depends = entries.is_chunk | entries.is_outcome | in_transaction
    return bool((depends & entries.delivered).any())


def without_values(entries: Entries, messages: Messages) -> None:
    """Remove the values of rows that are not messages."""
    is_part = entries.is_chunk | entries.is_outcome
    messages.value.present &= ~is_part[messages.entry]


def columns(
    entries: Entries, messages: Messages, offsets: Sequence[int]
) -> list[pa.Array]:
    """Return the two columns; `offsets` are those of all entries in the object."""
    entry, metadata = messages.entry, entries.metadata
    is_chunk, is_outcome = entries.is_chunk[entry], entries.is_outcome[entry]
    rows = np.flatnonzero(is_chunk)
    lanes = entry[rows]
    uuid = metadata.ranges[fields.UUID]
    data = messages.buffer.data
    is_tombstone = metadata.numbers[fields.NULL_VALUE].is_true
    sizes = metadata.numbers[fields.UNCOMPRESSED_SIZE].signed
    chunks: list[dict[str, object] | None] = [None] * len(entry)
    for row, lane in zip(rows.tolist(), lanes.tolist(), strict=True):
        start, length = messages.value.start[row], messages.value.length[row]
        name = slice(uuid.start[lane], uuid.start[lane] + uuid.length[lane])
        chunks[row] = {
            "uuid": entries.buffer[name].tobytes(),
            "number": int(metadata.numbers[fields.CHUNK_ID].signed[lane]),
            "chunks": int(metadata.numbers[fields.CHUNKS].signed[lane]),
            "codec": int(metadata.numbers[fields.COMPRESSION].signed[lane]),
            "decoded_bytes": int(sizes[lane]),
            "offset": offsets[lane],
            "data": None if is_tombstone[lane] else bytes(data[start : start + length]),
        }
    marker = metadata.numbers[fields.MARKER_TYPE].value[entry]
    committed = np.packbits(marker == fields.TXN_COMMIT, bitorder="little")
    validity = arrays.bitmap(is_outcome)
    outcomes = pa.Array.from_buffers(
        pa.bool_(), len(entry), [validity, pa.py_buffer(committed)]
    )
    return [pa.array(chunks, _CHUNK_TYPE), outcomes]


def has_columns(batch: pa.RecordBatch) -> bool:
    """Return whether a batch is of a run with rows that depend on other runs."""
    return OUTCOME in batch.schema.names


def chunks_of(batch: pa.RecordBatch) -> Iterator[tuple[int, Chunk]]:
    """Yield the chunks in a batch, each with its row."""
    column = batch.column(CHUNK)
    if column.null_count == len(column):
        return
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    names = ["__ledgerId", "__entryId", "__messageId", "__sequenceId", CHUNK]
    for row in rows.tolist():
        ledger, entry, message_id, sequence_id, chunk = (
            batch.column(name)[row].as_py() for name in names
        )
        publish_time = batch.column("__publishTime")[row].value
        yield row, Chunk(ledger, entry, message_id, sequence_id, publish_time, **chunk)


def outcomes_of(batch: pa.RecordBatch) -> Iterator[tuple[str, bool]]:
    """Yield the transactions that end in a batch, and whether they were committed."""
    column = batch.column(OUTCOME)
    if column.null_count == len(column):
        return
    ended = batch.filter(column.is_valid())
    yield from zip(
        ended.column("__txn").to_pylist(),
        ended.column(OUTCOME).to_pylist(),
        strict=True,
    )
