"""The payloads of a group of entries, decompressed, in one buffer."""

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
        buffer: With slack behind its last payload.
        shift: What to add to a place in the run's buffer to find it in this one.
        lanes: The entries, ascending.
        start: Where the payload of each begins; ascending as well.
        end: Where it ends.

    """

    buffer: Bytes
    shift: int
    lanes: Ints
    start: Ints
    end: Ints


def unpack(entries: Entries, lanes: Ints, faults: Faults) -> Payloads:
    """Decompress the payloads of entries that are neighbours.

    If one is compressed then all are brought behind a copy of what they came from, so
    that they stay in order: a gather of ascending ranges is a gather at full speed.
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
    for lane, how, first, behind, new_first, new_behind in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        source, target = entries.buffer[first:behind], buffer[new_first:new_behind]
        if how == codecs.NONE:
            target[:] = source
        elif (fault := codecs.decompress(how, source, target)) is not None:
            faults.add(lane, *fault)
    sound = faults.sound[lanes]
    return Payloads(buffer, -low, lanes[sound], new_start[sound], new_end[sound])
