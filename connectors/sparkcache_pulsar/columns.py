"""The metadata columns of messages in Spark; values.py makes the value columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sparkcache import arrays
from sparkcache.arrays import Ranges
from sparkcache.model import topic_and_root
from sparkcache_pulsar import entries as fields
from sparkcache_pulsar import names
from sparkcache_pulsar.message_ids import message_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.arrays import Bytes, Ints
    from sparkcache_pulsar.entries import Entries
    from sparkcache_pulsar.messages import Messages

ENVELOPE = pa.schema(
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
        ("__replicatedFrom", pa.string()),
        ("__deliverAt", arrays.TIMESTAMP),
    ]
)


class Places(NamedTuple):
    """Where some entries of a topic are.

    Attributes:
        topic: The topic's full name and root.
        ledger: The id of their ledger, or that of each.
        entry: The id of each.

    """

    topic: str
    ledger: int | Ints
    entry: Ints


def envelope(places: Places, entries: Entries, messages: Messages) -> list[pa.Array]:
    """Return the metadata columns of messages."""
    return _Columns(places, entries, messages).arrays()


def keys(messages: Messages) -> pa.Array:
    """Return the keys of messages, as bytes."""
    stored = arrays.binary(messages.buffer, messages.key)
    if not messages.decoded_keys:
        return stored
    key_list = stored.to_pylist()
    for row, key in messages.decoded_keys.items():
        key_list[row] = key
    return pa.array(key_list, pa.binary())


class _Columns:
    """The columns of some messages; values of an entry repeat for its messages."""

    def __init__(self, places: Places, entries: Entries, messages: Messages) -> None:
        self._topic, _ = topic_and_root(places.topic)
        self._ledger = places.ledger
        if not isinstance(places.ledger, int):
            self._ledger = places.ledger[messages.entry]
        self._entry_id = places.entry[messages.entry]
        self._entries = entries
        self._messages = messages
        self._rows = len(messages.entry)
        self._lanes, lane_of_row = np.unique(messages.entry, return_inverse=True)
        self._lane_of_row = pa.array(lane_of_row)

    def arrays(self) -> list[pa.Array]:
        messages, metadata = self._messages, self._entries.metadata
        partition = names.partition(self._topic)
        sent = metadata.numbers[fields.PUBLISH_TIME].signed[messages.entry]
        event = messages.event_time
        stored = self._entries.broker.numbers[fields.BROKER_TIMESTAMP]
        deliver_at = metadata.numbers[fields.DELIVER_AT]
        batch_index = messages.batch_index
        return [
            arrays.constant(self._topic, pa.string(), self._rows),
            arrays.constant(partition, pa.int32(), self._rows),
            self._ledger_ids(),
            arrays.int64(self._entry_id),
            arrays.int32(batch_index, batch_index >= 0),
            message_ids(
                *(self._ledger, self._entry_id, partition),
                *(batch_index, messages.batch_size),
            ),
            arrays.timestamp(sent),
            arrays.timestamp(event.signed, event.is_true),
            arrays.timestamp(
                stored.signed[messages.entry], stored.present[messages.entry]
            ),
            self._index(),
            keys(messages),
            arrays.binary(messages.buffer, messages.ordering_key),
            arrays.int64(messages.sequence_id.signed),
            self._from_entries(fields.PRODUCER_NAME, arrays.string),
            self._properties(),
            self._from_entries(fields.SCHEMA_VERSION, arrays.binary),
            self._transaction(),
            self._from_entries(fields.REPLICATED_FROM, arrays.string),
            arrays.timestamp(
                deliver_at.signed[messages.entry], deliver_at.present[messages.entry]
            ),
        ]

    def _ledger_ids(self) -> pa.Array:
        if isinstance(self._ledger, int):
            return arrays.constant(self._ledger, pa.int64(), self._rows)
        return arrays.int64(self._ledger)

    def _index(self) -> pa.Array:
        """Count back from the entry's index, which belongs to its last message."""
        messages = self._messages
        index = self._entries.broker.numbers[fields.BROKER_INDEX]
        following = np.where(
            messages.batch_index >= 0, messages.batch_size - 1 - messages.batch_index, 0
        )
        last = index.signed[messages.entry]
        return arrays.int64(last - following, index.present[messages.entry])

    def _properties(self) -> pa.Array:
        buffer, properties = self._messages.buffer, self._messages.properties
        keys = arrays.string(buffer, properties.key)
        values = arrays.string(buffer, properties.value)
        return arrays.maps(properties.row, keys, values, self._rows)

    def _from_entries(
        self, field: int, array: Callable[[Bytes, Ranges], pa.Array]
    ) -> pa.Array:
        """Repeat a field of each entry's metadata for each of its messages."""
        ranges = self._entries.metadata.ranges[field]
        lane_ranges = Ranges(
            ranges.start[self._lanes],
            ranges.length[self._lanes],
            ranges.present[self._lanes],
        )
        return array(self._entries.buffer, lane_ranges).take(self._lane_of_row)

    def _transaction(self) -> pa.Array:
        """Return transaction ids as Pulsar writes them: `(most,least)`, both signed."""
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
        return pa.array(texts, pa.string()).take(self._lane_of_row)
