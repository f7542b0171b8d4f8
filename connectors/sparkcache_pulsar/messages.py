"""The messages of a group of entries, a row each, as ranges of one buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.arrays import Ranges
from sparkcache_pulsar.protobuf import Numbers

if TYPE_CHECKING:
    from sparkcache.arrays import Bools, Bytes, Ints


@dataclass(slots=True)
class Properties:
    """Key and value of each property; `row` is its message's row, ascending."""

    row: Ints
    key: Ranges
    value: Ranges


@dataclass(slots=True)
class Messages:
    """Messages, a row each, ascending.

    Attributes:
        buffer: The bytes to which all ranges refer.
        entry: Each message's entry, counted from the first entry of the run.
        batch_index: Its index in its batch; -1 without a batch.
        batch_size: Number of messages in its batch; 0 without a batch.
        value: Absent for a tombstone.
        key: The key as stored.
        decoded_keys: Decoded keys by row, which replace a `key` stored as base64.
        properties: The properties of all messages.

    """

    buffer: Bytes
    entry: Ints
    batch_index: Ints
    batch_size: Ints
    value: Ranges
    key: Ranges
    decoded_keys: dict[int, bytes]
    ordering_key: Ranges
    event_time: Numbers
    sequence_id: Numbers
    properties: Properties


def select(messages: Messages, keep: Bools) -> Messages:
    """Return the messages that `keep` selects."""
    new_row = np.cumsum(keep) - 1
    properties = messages.properties
    kept = keep[properties.row]
    return Messages(
        messages.buffer,
        messages.entry[keep],
        messages.batch_index[keep],
        messages.batch_size[keep],
        _select_ranges(messages.value, keep),
        _select_ranges(messages.key, keep),
        {
            int(new_row[row]): key
            for row, key in messages.decoded_keys.items()
            if keep[row]
        },
        _select_ranges(messages.ordering_key, keep),
        _select_numbers(messages.event_time, keep),
        _select_numbers(messages.sequence_id, keep),
        Properties(
            new_row[properties.row[kept]],
            _select_ranges(properties.key, kept),
            _select_ranges(properties.value, kept),
        ),
    )


def _select_ranges(ranges: Ranges, keep: Bools) -> Ranges:
    return Ranges(ranges.start[keep], ranges.length[keep], ranges.present[keep])


def _select_numbers(numbers: Numbers, keep: Bools) -> Numbers:
    return Numbers(numbers.value[keep], numbers.present[keep])
