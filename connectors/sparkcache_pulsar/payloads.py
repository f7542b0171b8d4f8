"""Decompress the payloads of a group of entries into one buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkcache_pulsar import codecs
from sparkcache_pulsar.protobuf import SLACK_BYTES

if TYPE_CHECKING:
    from sparkcache.arrays import Bytes, Ints
    from sparkcache_pulsar.entries import Entries
    from sparkcache_pulsar.faults import Faults


@dataclass(slots=True)
class Payloads:
    """The payloads of entries, and their metadata, in one buffer.

    Attributes:
        buffer: The bytes, with slack after the last payload.
        shift: Added to an offset in the run's buffer, gives the offset in this one.
        lanes: The entries, ascending.
        start: Start of each payload, ascending too.
        end: End of each payload.

    """

    buffer: Bytes
    shift: int
    lanes: Ints
    start: Ints
    end: Ints


def unpack(entries: Entries, lanes: Ints, faults: Faults) -> Payloads:
    """Decompress the payloads of adjacent entries.

    If any is compressed, all are written after a copy of the stored entries, so that
    they stay in order: Arrow gathers ascending ranges at full speed.
    """
    codec = entries.codec[lanes]
    start, end = entries.start[lanes], entries.end[lanes]
    if not codec.any():
        return Payloads(entries.buffer, 0, lanes, start, end)
    low, high = int(entries.first_byte[lanes[0]]), int(end[-1])
    sizes = entries.decoded_bytes[lanes]
    new_end = high - low + np.cumsum(sizes)
    new_start = new_end - sizes
    buffer = np.empty(int(new_end[-1]) + SLACK_BYTES, np.uint8)
    buffer[: high - low] = entries.buffer[low:high]
    buffer[-SLACK_BYTES:] = 0
    columns = (lanes, codec, start, end, new_start, new_end)
    for lane, payload_codec, first, stop, new_first, new_stop in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        source, target = entries.buffer[first:stop], buffer[new_first:new_stop]
        if payload_codec == codecs.NONE:
            target[:] = source
        elif (fault := codecs.decompress(payload_codec, source, target)) is not None:
            faults.add(lane, *fault)
    sound = faults.sound[lanes]
    return Payloads(buffer, -low, lanes[sound], new_start[sound], new_end[sound])
