"""Find the messages in the payloads of entries.

The payload of an entry is a batch of messages if `num_messages_in_batch` is present,
even with 1; otherwise it is one message. Every message is a lane of a table of
SingleMessageMetadata. The lane of a message that is not in a batch is empty, and the
entry's metadata are used instead.

Source: MessageImpl of Apache Pulsar's client. The key, ordering key and properties of a
batch's entry do not apply to its messages: they are copied from the first message.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.arrays import Ranges, words
from sparkcache_pulsar import codecs
from sparkcache_pulsar import entries as entry_fields
from sparkcache_pulsar.batch_starts import find_starts
from sparkcache_pulsar.batches import PARTITION_KEY, PAYLOAD_SIZE, PROPERTIES
from sparkcache_pulsar.messages import Messages, Properties, select
from sparkcache_pulsar.protobuf import Kind, Numbers, Repeated, parse

if TYPE_CHECKING:
    from sparkcache.arrays import Bools, Ints
    from sparkcache_pulsar.entries import Entries
    from sparkcache_pulsar.faults import Faults
    from sparkcache_pulsar.payloads import Payloads
    from sparkcache_pulsar.protobuf import Table

COMPACTED_OUT, EVENT_TIME, KEY_IS_BASE64, ORDERING_KEY = 4, 5, 6, 7
SEQUENCE_ID, NULL_VALUE, NULL_KEY = 8, 9, 10

_FIELDS = {
    PROPERTIES: Kind.RANGES,
    PARTITION_KEY: Kind.RANGE,
    PAYLOAD_SIZE: Kind.NUMBER,
    COMPACTED_OUT: Kind.NUMBER,
    EVENT_TIME: Kind.NUMBER,
    KEY_IS_BASE64: Kind.NUMBER,
    ORDERING_KEY: Kind.RANGE,
    SEQUENCE_ID: Kind.NUMBER,
    NULL_VALUE: Kind.NUMBER,
    NULL_KEY: Kind.NUMBER,
}
_PAIR_KEY, _PAIR_VALUE = 1, 2
_MAX_INT32 = (1 << 31) - 1
_PAIR_FIELDS = {_PAIR_KEY: Kind.RANGE, _PAIR_VALUE: Kind.RANGE}


MAX_MESSAGES = 1 << 20
"""Limit for messages in a batch: more than fit into the 5 MiB that a broker accepts."""


def find_messages(entries: Entries, payloads: Payloads, faults: Faults) -> Messages:
    """Find the messages of the payloads, except those of unsound entries."""
    return _Finder(entries, payloads, faults).find()


class _Finder:
    """The rows of a group of entries: first all byte ranges, then their contents.

    `_single` marks rows that are not in a batch; they have the entry's metadata.
    """

    def __init__(self, entries: Entries, payloads: Payloads, faults: Faults) -> None:
        self._entry_metadata = entries.metadata
        self._payloads = payloads
        self._faults = faults
        listed = entries.metadata.repeated[entry_fields.BATCH_INDEXES]
        self._retained = np.bincount(listed.lane, minlength=len(entries.start))
        counts, starts = self._find_batches()
        rows = int(counts.sum())
        lane = np.repeat(np.arange(len(counts)), counts)
        first_row = np.cumsum(counts) - counts
        sizes = entries.metadata.numbers[entry_fields.MESSAGES_IN_BATCH]
        self._entry = payloads.lanes[lane]
        self._batch_index = np.arange(rows) - first_row[lane]
        self._single = ~sizes.present[self._entry]
        self._batch_size = sizes.signed[self._entry]
        self._start = payloads.start[lane]
        self._start[~self._single] = starts
        self._end = payloads.end[lane]
        same = lane[1:] == lane[:-1]
        self._end[:-1][same] = self._start[1:][same]
        self._restore_indexes(counts)

    def _find_batches(self) -> tuple[Ints, Ints]:
        """Return message counts per payload, and the starts of messages in batches."""
        payloads = self._payloads
        sizes = self._entry_metadata.numbers[entry_fields.MESSAGES_IN_BATCH]
        counts = np.ones(len(payloads.lanes), np.int64)
        batches = np.flatnonzero(sizes.present[payloads.lanes])
        lanes = payloads.lanes[batches]
        size, start, end = sizes.signed[lanes], payloads.start, payloads.end
        found, starts = find_starts(
            payloads.buffer,
            start[batches],
            end[batches],
            size.clip(0, MAX_MESSAGES),
        )
        # A compacted batch may have all messages, or only those that it lists.
        is_whole = (found >= 0) & (found == size)
        is_whole |= (found > 0) & (found == self._retained[lanes])
        is_small = found * self._shared_bytes(lanes) <= codecs.MAX_PAYLOAD_BYTES
        for index in np.flatnonzero(~(is_whole & is_small)).tolist():
            batch = batches[index]
            self._add_fault(
                int(lanes[index]),
                int(size[index]),
                int(end[batch] - start[batch]),
                int(found[index]) if is_whole[index] else None,
            )
        kept = np.where(is_whole & is_small, found, 0)
        if not (is_whole & is_small).all():
            starts = starts[np.repeat(kept > 0, found.clip(0))]
        counts[batches] = kept
        return counts, starts

    def _shared_bytes(self, lanes: Ints) -> Ints:
        """Return the bytes of entries of which each message has a copy."""
        ranges = self._entry_metadata.ranges
        name = ranges[entry_fields.PRODUCER_NAME].length[lanes]
        shared: Ints = name + ranges[entry_fields.SCHEMA_VERSION].length[lanes]
        return shared

    def _add_fault(
        self, lane: int, size: int, size_bytes: int, found: int | None
    ) -> None:
        """Mark an entry whose messages are not found, or are too many."""
        if found is None:
            expected = f"a batch of {size} messages in {size_bytes} bytes"
            self._faults.add(lane, expected, "lengths that do not add up to that")
            return
        expected = (
            "producer name and schema version of up to "
            f"{codecs.MAX_PAYLOAD_BYTES} bytes for all messages of a batch"
        )
        shared_bytes = int(self._shared_bytes(np.array([lane]))[0])
        each = f"{shared_bytes} bytes for each of {found} messages"
        self._faults.add(lane, expected, each)

    def find(self) -> Messages:
        buffer = self._payloads.buffer
        batched = ~self._single
        start = np.where(batched, self._start + 4, 0)
        length = words(buffer, ">u4")[self._start]
        value_start = np.where(batched, start + length, self._start)
        table = parse(buffer, start, np.where(batched, value_start, 0), _FIELDS)
        size = np.where(
            batched, table.numbers[PAYLOAD_SIZE].signed, self._end - self._start
        )
        wrong = table.bad | (size < 0) | (value_start + size != self._end)
        broken = np.unique(self._entry[wrong & batched])
        self._faults.add_all(
            broken, "metadata of each message of a batch", "bytes that do not parse"
        )
        key = self._range(table, PARTITION_KEY, entry_fields.PARTITION_KEY)
        no_key = self._number(table, NULL_KEY, entry_fields.NULL_PARTITION_KEY)
        key.present &= ~no_key.is_true
        base64 = self._number(table, KEY_IS_BASE64, entry_fields.KEY_IS_BASE64)
        decoded_keys = self._decode_keys(key, base64.is_true)
        no_value = self._number(table, NULL_VALUE, entry_fields.NULL_VALUE)
        value = Ranges(value_start, size, ~no_value.is_true)
        messages = Messages(
            buffer,
            self._entry,
            np.where(batched, self._batch_index, -1),
            np.where(batched, self._batch_size, 0),
            value,
            key,
            decoded_keys,
            self._range(table, ORDERING_KEY, entry_fields.ORDERING_KEY),
            self._inherited(table, EVENT_TIME, entry_fields.EVENT_TIME),
            self._inherited(table, SEQUENCE_ID, entry_fields.SEQUENCE_ID),
            self._pairs(self._properties(table)),
        )
        compacted_out = table.numbers[COMPACTED_OUT].is_true & batched
        keep = self._faults.sound[self._entry] & ~compacted_out
        return messages if keep.all() else select(messages, keep)

    def _range(self, table: Table, field: int, entry_field: int) -> Ranges:
        """Take a range from the message, or from its entry if not in a batch."""
        from_messages, single = table.ranges[field], self._single
        if not single.any():
            return from_messages
        from_entries, entry = self._entry_metadata.ranges[entry_field], self._entry
        return Ranges(
            np.where(
                single,
                from_entries.start[entry] + self._payloads.shift,
                from_messages.start,
            ),
            np.where(single, from_entries.length[entry], from_messages.length),
            np.where(single, from_entries.present[entry], from_messages.present),
        )

    def _number(self, table: Table, field: int, entry_field: int) -> Numbers:
        """Take a number from the message, or from its entry if not in a batch."""
        return self._numbers_where(self._single, table, field, entry_field)

    def _inherited(self, table: Table, field: int, entry_field: int) -> Numbers:
        """Take a number from the message, or from its entry if absent there."""
        from_entry = ~table.numbers[field].present
        return self._numbers_where(from_entry, table, field, entry_field)

    def _numbers_where(
        self, from_entry: Bools, table: Table, field: int, entry_field: int
    ) -> Numbers:
        from_messages, from_entries = (
            table.numbers[field],
            self._entry_metadata.numbers[entry_field],
        )
        if not from_entry.any():
            return from_messages
        return Numbers(
            np.where(from_entry, from_entries.value[self._entry], from_messages.value),
            np.where(
                from_entry, from_entries.present[self._entry], from_messages.present
            ),
        )

    def _properties(self, table: Table) -> Repeated:
        from_messages = table.repeated[PROPERTIES]
        from_entries = self._entry_metadata.repeated[entry_fields.PROPERTIES]
        if not (len(from_entries.lane) and self._single.any()):
            return from_messages
        row_of_entry = np.full(len(self._entry_metadata.bad), -1)
        rows = np.flatnonzero(self._single)
        row_of_entry[self._entry[rows]] = rows
        row = row_of_entry[from_entries.lane]
        is_single = row >= 0
        start = from_entries.start[is_single] + self._payloads.shift
        row, length = row[is_single], from_entries.length[is_single]
        row = np.concatenate([from_messages.lane, row])
        order = np.argsort(row, kind="stable")
        return Repeated(
            row[order],
            np.concatenate([from_messages.start, start])[order],
            np.concatenate([from_messages.length, length])[order],
            np.zeros(len(order), np.uint64),
        )

    def _pairs(self, properties: Repeated) -> Properties:
        buffer = self._payloads.buffer
        table = parse(
            buffer, properties.start, properties.start + properties.length, _PAIR_FIELDS
        )
        key, value = table.ranges[_PAIR_KEY], table.ranges[_PAIR_VALUE]
        bad = table.bad | ~key.present | ~value.present
        self._faults.add_all(
            np.unique(self._entry[properties.lane[bad]]),
            "properties, each with key and value",
            "bytes that do not parse as such",
        )
        return Properties(properties.lane, key, value)

    def _decode_keys(self, key: Ranges, base64: Bools) -> dict[int, bytes]:
        """Decode the keys that producers set as bytes, which are stored as base64."""
        data = self._payloads.buffer.data
        decoded = {}
        for row in np.flatnonzero(base64 & key.present).tolist():
            start, length = int(key.start[row]), int(key.length[row])
            try:
                decoded[row] = a2b_base64(
                    data[start : start + length], strict_mode=True
                )
            except Base64Error as error:
                self._faults.add(int(self._entry[row]), "a key in base64", str(error))
        return decoded

    def _restore_indexes(self, counts: Ints) -> None:
        """Restore the indexes that messages of compacted batches had originally.

        Such an entry lists the original indexes of its remaining messages.
        """
        listed = self._entry_metadata.repeated[entry_fields.BATCH_INDEXES]
        if not len(listed.lane):
            return
        lanes = self._payloads.lanes
        compacted = np.zeros(len(self._retained), np.bool_)
        compacted[self._entry[~self._single]] = True
        compacted[lanes] &= counts == self._retained[lanes]
        is_compacted = compacted[listed.lane]
        index, lane = (
            listed.number.view(np.int64)[is_compacted],
            listed.lane[is_compacted],
        )
        self._batch_index[compacted[self._entry]] = index
        sizes = self._entry_metadata.numbers[entry_fields.MESSAGES_IN_BATCH].signed[
            lane
        ]
        wrong = (index < 0) | (index >= sizes) | (sizes > _MAX_INT32)
        wrong[1:] |= (lane[1:] == lane[:-1]) & (index[1:] <= index[:-1])
        self._faults.add_all(
            np.unique(lane[wrong]),
            "compacted_batch_indexes that ascend, below num_messages_in_batch",
            "other indexes",
        )
