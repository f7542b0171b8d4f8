"""The messages of a group of entries, a row each, as places in one buffer."""

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
    """Key and value of each property; `row` says, ascending, whose it is."""

    row: Ints
    key: Ranges
    value: Ranges


@dataclass(slots=True)
class Messages:
    """Messages, a row each, ascending.

    Attributes:
        buffer: What all ranges are in.
        entry: The entry of each, counted from the first of the run.
        batch_index: Its place in its batch, -1 without one.
        batch_size: Messages in its batch, 0 without one.
        value: Not present for a tombstone.
        key: As it is stored.
        decoded_keys: What takes the place of `key`, by row, where that is base64.
        properties: Of all of them.

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
    """Return some of the messages."""
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
