"""A run of frames becomes record batches.

    frames      -> entries      envelope, checksum, metadata       entries.py
    payloads    -> one buffer   decompressed                       payloads.py
    batches     -> messages     a row each, as places in it        unbatching.py
    places      -> columns      copied together by Arrow           here

Whatever is wrong with an entry takes that entry out, and is told; see faults.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.model import Loss
from sparkcache_pulsar import arrays, names
from sparkcache_pulsar import entries as fields
from sparkcache_pulsar.entries import Entries, read_entries
from sparkcache_pulsar.faults import Faults
from sparkcache_pulsar.frames import Walk
from sparkcache_pulsar.message_ids import message_ids
from sparkcache_pulsar.payloads import unpack
from sparkcache_pulsar.protobuf import Ranges
from sparkcache_pulsar.unbatching import find_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger
    from sparkcache_pulsar.messages import Messages
    from sparkcache_pulsar.protobuf import Bytes

SCHEMA = pa.schema(
    [
        ("__topic", pa.string()),
        ("__partition", pa.int32()),
        ("__ledgerId", pa.int64()),
        ("__entryId", pa.int64()),
        ("__batchIndex", pa.int32()),
        ("__messageId", pa.binary()),
        ("__publishTime", arrays.TIMESTAMP),
        ("__eventTime", arrays.TIMESTAMP),
        ("__brokerPublishTime", arrays.TIMESTAMP),
        ("__index", pa.int64()),
        ("__key", pa.binary()),
        ("__orderingKey", pa.binary()),
        ("__sequenceId", pa.int64()),
        ("__producerName", pa.string()),
        ("__properties", pa.map_(pa.string(), pa.string())),
        ("__schemaVersion", pa.binary()),
        ("__txn", pa.string()),
        ("value", pa.binary()),
    ]
)

_MAX_GROUP_BYTES = 1 << 30  # an array's offsets are int32


def decode(ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
    """Decode a run; its losses are those of the raw run and what is found here."""
    walk = Walk(raw.run.first)
    walk.advance(raw.data, raw.run.last, len(raw.data))
    faults = Faults(len(walk.starts))
    batches: list[pa.RecordBatch] = []
    if walk.starts:
        entries = read_entries(raw.data, walk.starts, faults)
        for lanes in entries.groups(min(batch_bytes, _MAX_GROUP_BYTES)):
            payloads = unpack(entries, lanes, faults)
            messages = find_messages(entries, payloads, faults)
            if len(messages.entry):
                batch = _Columns(ledger, raw.run.first, entries, messages).batch()
                batches.extend(_pieces(batch, batch_bytes))
    losses = faults.losses(ledger, raw, walk.starts) + raw.losses
    if walk.entry <= raw.run.last and not raw.losses:
        losses += (_cut_short(ledger, raw, walk),)
    return DecodedRun(batches, losses)


def _cut_short(ledger: Ledger, raw: RawRun, walk: Walk) -> Loss:
    fault = walk.fault or (f"entry {walk.entry}", "the end of the data")
    place = ledger.object.uri, raw.offset + walk.at, ledger.id
    return Loss(*place, walk.entry, raw.run.last, *fault)


def _pieces(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut the batch of an entry that is much larger than batches are to be."""
    pieces = max(1, round(batch.column("value").nbytes / max(1, batch_bytes)))
    rows = -(-len(batch) // pieces)
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)


class _Columns:
    """The columns of some messages. Those of entries are taken once per message."""

    def __init__(
        self, ledger: Ledger, first_entry: int, entries: Entries, messages: Messages
    ) -> None:
        self._ledger = ledger
        self._topic = names.without_place(ledger.topic)
        self._first_entry = first_entry
        self._entries = entries
        self._messages = messages
        self._rows = len(messages.entry)
        self._lanes, self._lane_of_row = np.unique(messages.entry, return_inverse=True)

    def batch(self) -> pa.RecordBatch:
        messages, metadata = self._messages, self._entries.metadata
        partition = names.partition(self._topic)
        entry_id = messages.entry + self._first_entry
        sent = metadata.numbers[fields.PUBLISH_TIME].signed[messages.entry]
        event = messages.event_time
        stored = self._entries.broker.numbers[fields.BROKER_TIMESTAMP]
        batch_index = messages.batch_index
        columns = [
            arrays.constant(self._topic, pa.string(), self._rows),
            arrays.constant(partition, pa.int32(), self._rows),
            arrays.constant(self._ledger.id, pa.int64(), self._rows),
            arrays.int64(entry_id),
            arrays.int32(batch_index, batch_index >= 0),
            message_ids(
                self._ledger.id, entry_id, partition, batch_index, messages.batch_size
            ),
            arrays.timestamp(sent),
            arrays.timestamp(event.signed, event.is_true),
            arrays.timestamp(
                stored.signed[messages.entry], stored.present[messages.entry]
            ),
            self._index(),
            self._key(),
            arrays.binary(messages.buffer, messages.ordering_key),
            arrays.int64(messages.sequence_id.signed),
            self._of_entries(fields.PRODUCER_NAME, arrays.string),
            self._properties(),
            self._of_entries(fields.SCHEMA_VERSION, arrays.binary),
            self._transaction(),
            arrays.binary(messages.buffer, messages.value),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _index(self) -> pa.Array:
        """Count back from the entry's index, which is that of its last message."""
        messages, index = (
            self._messages,
            self._entries.broker.numbers[fields.BROKER_INDEX],
        )
        behind = np.where(
            messages.batch_index >= 0, messages.batch_size - 1 - messages.batch_index, 0
        )
        last = index.signed[messages.entry]
        return arrays.int64(last - behind, index.present[messages.entry])

    def _key(self) -> pa.Array:
        stored = arrays.binary(self._messages.buffer, self._messages.key)
        if not self._messages.decoded_keys:
            return stored
        keys = stored.to_pylist()
        for row, key in self._messages.decoded_keys.items():
            keys[row] = key
        return pa.array(keys, pa.binary())

    def _properties(self) -> pa.Array:
        buffer, found = self._messages.buffer, self._messages.properties
        keys, values = (
            arrays.string(buffer, found.key),
            arrays.string(buffer, found.value),
        )
        return arrays.maps(found.row, keys, values, self._rows)

    def _of_entries(
        self, field: int, array: Callable[[Bytes, Ranges], pa.Array]
    ) -> pa.Array:
        """Copy a range of each entry's metadata, for each of its messages."""
        ranges = self._entries.metadata.ranges[field]
        of_lanes = Ranges(
            ranges.start[self._lanes],
            ranges.length[self._lanes],
            ranges.present[self._lanes],
        )
        return array(self._entries.buffer, of_lanes).take(self._take)

    @property
    def _take(self) -> pa.Array:
        return pa.array(self._lane_of_row)

    def _transaction(self) -> pa.Array:
        """Write transaction ids as Pulsar does: `(most,least)`, both signed."""
        numbers = self._entries.metadata.numbers
        most, least = numbers[fields.TXN_MOST_BITS], numbers[fields.TXN_LEAST_BITS]
        if not most.present[self._lanes].any():
            return pa.nulls(self._rows, pa.string())
        texts = [
            f"({int(most.signed[lane])},{int(least.signed[lane])})"
            if most.present[lane]
            else None
            for lane in self._lanes
        ]
        return pa.array(texts, pa.string()).take(self._take)
