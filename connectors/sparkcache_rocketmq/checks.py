"""Checks of the fields of a record that no checksum covers.

Each refuses what no broker writes:

    flags               bits that belong together, of which only some are set
    ports               more than 16 bits
    store time          before 1970 or after 9999; a broker sets it by its own clock
    reconsume times     a negative number
    properties          a property without a name, or without 01; see properties.py.
                        The number of messages of an inner batch in another record

Times of birth are not checked, because some producers write nanoseconds. Nor is the
encoding of properties: a broker stores messages that were sent as a batch as it gets
them, and clients that are not written in Java may send any bytes.

Source: MessageExtEncoder, MessageDecoder and MessageSysFlag of Apache RocketMQ, which
check none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparkcache_rocketmq.records import CODECS, COMPRESSED, INNER_BATCH, INNER_NUM

if TYPE_CHECKING:
    from sparkcache.arrays import Bools, Ints
    from sparkcache_rocketmq.bodies import Faults
    from sparkcache_rocketmq.properties import Properties
    from sparkcache_rocketmq.records import Records

_MOST_PORT = (1 << 16) - 1
_MOST_TIME_MS = 253_402_300_799_999  # the end of the year 9999
_FOUND_BYTES = 40


def check_fields(records: Records, faults: Faults) -> None:
    """Mark the records with fields that no broker writes."""

    def require(is_right: Bools, expected: str, found: Ints) -> None:
        for lane in np.flatnonzero(~is_right).tolist():
            faults.add(lane, expected, str(found[lane]))

    flag = records.sys_flag
    batch = flag & INNER_BATCH
    is_right = (batch == 0) | (batch == INNER_BATCH)
    require(is_right, "both flags of an inner batch, or neither", flag)
    is_right = (flag & COMPRESSED != 0) | (flag & CODECS == 0)
    require(is_right, "a compression type only if the body is compressed", flag)
    for end in (records.store_time, records.body - 16):
        port = records.int32(end - 4)
        is_right = (port >= 0) & (port <= _MOST_PORT)
        require(is_right, f"a port of at most {_MOST_PORT}", port)
    time_ms = records.int64(records.store_time)
    is_right = (time_ms >= 0) & (time_ms <= _MOST_TIME_MS)
    require(is_right, "a store time from 1970 to 9999, in ms", time_ms)
    times = records.int32(records.body - 16)
    require(times >= 0, "reconsume times of at least 0", times)


def check_properties(
    records: Records, lane: Ints, properties: Properties, faults: Faults
) -> bool:
    """Mark the records with properties that no broker writes; return whether any has.

    The messages of an inner batch are not checked: its checksum covers them.

    Args:
        records: The records.
        lane: The record of each message.
        properties: The properties of each message.
        faults: Where to mark records.

    """
    is_batch = records.has(INNER_BATCH)
    found = []
    for row, start, end in zip(
        lane[properties.malformed_row].tolist(),
        properties.malformed.tolist(),
        properties.malformed_end.tolist(),
        strict=True,
    ):
        stored = properties.buffer[start : min(end, start + _FOUND_BYTES)].tobytes()
        found.append((row, "properties of the form 'name 01 value 02'", f"{stored!r}"))
    expected = f"no property {INNER_NUM} outside of inner batches"
    rows = lane[properties.rows_with(INNER_NUM)].tolist()
    found += [(row, expected, "one") for row in rows]
    wrong = [fault for fault in found if not is_batch[fault[0]]]
    for fault in wrong:
        faults.add(*fault)
    return bool(wrong)
