"""Read the headers before the payloads of a run's entries, as columns.

    0x0e02  int16   optional, with
    length  int32   and that many bytes BrokerEntryMetadata
    0x0e01  int16   optional, with
    crc32c  int32   of all that follows
    length  int32   and that many bytes MessageMetadata
    payload

All numbers are big-endian.

Source: the binary protocol of Apache Pulsar. Different here: entries that a client
drops silently (wrong checksum, metadata that does not parse) are faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from sparkcache.arrays import words
from sparkcache_pulsar import codecs
from sparkcache_pulsar.faults import Faults
from sparkcache_pulsar.frames import FRAME_HEADER_BYTES
from sparkcache_pulsar.protobuf import Kind, parse
from sparkcache_pulsar.splitting import with_slack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.arrays import Bools, Bytes, Ints
    from sparkcache_pulsar.protobuf import Table

BROKER_TIMESTAMP, BROKER_INDEX = 1, 2
PRODUCER_NAME, SEQUENCE_ID, PUBLISH_TIME, PROPERTIES = 1, 2, 3, 4
PARTITION_KEY, COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES_IN_BATCH = 6, 8, 9, 11
EVENT_TIME, ENCRYPTION_KEYS, ENCRYPTION_ALGORITHM, ENCRYPTION_PARAM = 12, 13, 14, 15
SCHEMA_VERSION, KEY_IS_BASE64 = 16, 17
REPLICATED_FROM, DELIVER_AT = 5, 19
ORDERING_KEY, MARKER_TYPE, TXN_LEAST_BITS, TXN_MOST_BITS = 18, 20, 22, 23
NULL_VALUE, UUID, CHUNKS, CHUNKS_BYTES, CHUNK_ID = 25, 26, 27, 28, 29
NULL_PARTITION_KEY, BATCH_INDEXES = 30, 31

TXN_COMMIT, TXN_ABORT = 21, 22

_BROKER_MAGIC, _CHECKSUM_MAGIC = 0x0E02, 0x0E01
_BROKER_FIELDS = {BROKER_TIMESTAMP: Kind.NUMBER, BROKER_INDEX: Kind.NUMBER}
_FIELDS = {
    PRODUCER_NAME: Kind.RANGE,
    SEQUENCE_ID: Kind.NUMBER,
    PUBLISH_TIME: Kind.NUMBER,
    PROPERTIES: Kind.RANGES,
    REPLICATED_FROM: Kind.RANGE,
    PARTITION_KEY: Kind.RANGE,
    COMPRESSION: Kind.NUMBER,
    UNCOMPRESSED_SIZE: Kind.NUMBER,
    MESSAGES_IN_BATCH: Kind.NUMBER,
    EVENT_TIME: Kind.NUMBER,
    ENCRYPTION_KEYS: Kind.RANGES,
    ENCRYPTION_ALGORITHM: Kind.RANGE,
    ENCRYPTION_PARAM: Kind.RANGE,
    SCHEMA_VERSION: Kind.RANGE,
    KEY_IS_BASE64: Kind.NUMBER,
    ORDERING_KEY: Kind.RANGE,
    DELIVER_AT: Kind.NUMBER,
    MARKER_TYPE: Kind.NUMBER,
    TXN_LEAST_BITS: Kind.NUMBER,
    TXN_MOST_BITS: Kind.NUMBER,
    NULL_VALUE: Kind.NUMBER,
    UUID: Kind.RANGE,
    CHUNKS: Kind.NUMBER,
    CHUNKS_BYTES: Kind.NUMBER,
    CHUNK_ID: Kind.NUMBER,
    NULL_PARTITION_KEY: Kind.NUMBER,
    BATCH_INDEXES: Kind.NUMBERS,
}


@dataclass(slots=True)
class Entries:
    """The entries of a run: one lane each, counted from the run's first entry.

    Attributes:
        buffer: The run's bytes, followed by slack; read-only.
        broker: BrokerEntryMetadata; all fields absent for entries without it.
        metadata: MessageMetadata.
        first_byte: Start of each entry in the buffer.
        start: Start of its payload.
        end: End of the entry.
        codec: Codec of each payload; chunks count as plain, since only all chunks of a
            message together can be decompressed.
        decoded_bytes: Size of each payload after decompression.
        is_chunk: Which entries hold a chunk of a message.
        is_outcome: Which entries mark the end of a transaction.
        delivered: Which entries become rows: all but markers for brokers only.

    """

    buffer: Bytes
    broker: Table
    metadata: Table
    first_byte: Ints
    start: Ints
    end: Ints
    codec: Ints
    decoded_bytes: Ints
    is_chunk: Bools
    is_outcome: Bools
    delivered: Bools

    def groups(self, group_bytes: int) -> Iterator[Ints]:
        """Yield the delivered entries in groups of about `group_bytes` decoded."""
        lanes = np.flatnonzero(self.delivered)
        total_bytes = np.cumsum(self.decoded_bytes[lanes])
        first, yielded_bytes = 0, 0
        while first < len(lanes):
            stop = int(
                np.searchsorted(total_bytes, yielded_bytes + group_bytes, side="right")
            )
            stop = max(stop, first + 1)
            yield lanes[first:stop]
            first, yielded_bytes = stop, int(total_bytes[stop - 1])


def read_entries(
    data: bytes | memoryview, starts: Sequence[int], faults: Faults
) -> Entries:
    """Read the entries whose frames begin at `starts`."""
    buffer = with_slack(data)
    frame = np.array(starts, np.int64)
    offset = frame + FRAME_HEADER_BYTES
    end = offset + words(buffer, ">i4")[frame]
    offset, broker = _read_broker_metadata(buffer, offset, end, faults)
    offset = _verify_checksums(buffer, offset, end, faults)
    metadata_start, payload_start = _delimited(
        buffer, offset, end, "message metadata", faults
    )
    table = parse(buffer, metadata_start, payload_start, _FIELDS)
    version = table.ranges[SCHEMA_VERSION]  # old clients write an empty version
    version.present &= version.length > 0
    _check_metadata(table, faults)
    codec, size = table.numbers[COMPRESSION].value, table.numbers[UNCOMPRESSED_SIZE]
    too_large = (codec != codecs.NONE) & (size.value > codecs.MAX_PAYLOAD_BYTES)
    for lane in np.flatnonzero(too_large & faults.sound).tolist():
        limit = f"a payload of up to {codecs.MAX_PAYLOAD_BYTES} bytes"
        faults.add(lane, limit, f"a payload of {size.value[lane]} bytes")
    is_chunk = table.numbers[CHUNKS].signed > 1
    marker = table.numbers[MARKER_TYPE]
    is_outcome = (marker.value == TXN_COMMIT) | (marker.value == TXN_ABORT)
    table.numbers[MESSAGES_IN_BATCH].present &= ~(is_chunk | is_outcome)
    payload_codec = np.where(is_chunk | is_outcome, codecs.NONE, codec).view(np.int64)
    return Entries(
        buffer,
        broker,
        table,
        first_byte=frame,
        start=payload_start,
        end=end,
        codec=payload_codec,
        decoded_bytes=np.where(
            payload_codec == codecs.NONE, end - payload_start, size.signed
        ),
        is_chunk=is_chunk,
        is_outcome=is_outcome,
        delivered=faults.sound & (is_outcome | ~marker.present),
    )


def publish_time(data: bytes, starts: Sequence[int]) -> int | None:
    """Return when the first message was sent, in milliseconds; None without messages.

    Skips markers of brokers and damaged entries.
    """
    faults = Faults(len(starts))
    entries = read_entries(data, starts, faults)
    lanes = np.flatnonzero(entries.delivered & ~entries.is_outcome)
    sent = entries.metadata.numbers[PUBLISH_TIME].signed
    return int(sent[lanes[0]]) if len(lanes) else None


def _read_broker_metadata(
    buffer: Bytes, offset: Ints, end: Ints, faults: Faults
) -> tuple[Ints, Table]:
    """Read the optional metadata of brokers; return the offsets after it too."""
    lanes = np.flatnonzero(_has_magic(buffer, offset, end, _BROKER_MAGIC))
    starts, ends = np.zeros((2, len(offset)), np.int64)
    after = offset.copy()
    if len(lanes):
        size = words(buffer, ">u4")[offset[lanes] + 2]
        starts[lanes] = offset[lanes] + 6
        ends[lanes] = starts[lanes] + size
        short = lanes[ends[lanes] > end[lanes]]
        faults.add_all(short, "broker metadata", "the end of the entry")
        starts[short] = ends[short] = end[short]
        after[lanes] = ends[lanes]
    table = parse(buffer, starts, ends, _BROKER_FIELDS)
    bad = np.flatnonzero(table.bad)
    faults.add_all(bad, "broker metadata", "bytes that do not parse as such")
    return after, table


def _verify_checksums(buffer: Bytes, offset: Ints, end: Ints, faults: Faults) -> Ints:
    has_checksum = _has_magic(buffer, offset, end, _CHECKSUM_MAGIC)
    lanes = np.flatnonzero(has_checksum & faults.sound)
    after = offset + 6 * has_checksum
    stored = words(buffer, ">u4")[offset[lanes] + 2].tolist()
    checksum = google_crc32c.value
    for lane, start, stop, expected in zip(
        lanes.tolist(), after[lanes].tolist(), end[lanes].tolist(), stored, strict=True
    ):
        if (found := checksum(buffer[start:stop])) != expected:
            faults.add(lane, f"bytes of crc32c {expected:#010x}", f"{found:#010x}")
    return after


def _has_magic(buffer: Bytes, offset: Ints, end: Ints, magic: int) -> Bools:
    has_magic: Bools = (offset + 6 <= end) & (words(buffer, ">u2")[offset] == magic)
    return has_magic


def _delimited(
    buffer: Bytes, offset: Ints, end: Ints, field: str, faults: Faults
) -> tuple[Ints, Ints]:
    """Return start and end of length-prefixed fields; empty for unsound entries."""
    start = offset + 4
    stop = start + words(buffer, ">u4")[offset]
    short = np.flatnonzero(faults.sound & (stop > end))
    faults.add_all(short, field, "the end of the entry")
    return np.where(faults.sound, start, end), np.where(faults.sound, stop, end)


def _check_metadata(table: Table, faults: Faults) -> None:
    complete = ~table.bad & table.ranges[PRODUCER_NAME].present
    complete &= table.numbers[SEQUENCE_ID].present
    complete &= table.numbers[PUBLISH_TIME].present
    broken = np.flatnonzero(faults.sound & ~complete)
    faults.add_all(broken, "message metadata", "bytes that do not parse as such")
    chunks, chunk_id = table.numbers[CHUNKS].signed, table.numbers[CHUNK_ID].signed
    size = table.numbers[CHUNKS_BYTES].signed
    is_valid = table.ranges[UUID].present & (chunk_id >= 0) & (chunk_id < chunks)
    is_valid &= (size >= 0) & (size <= codecs.MAX_PAYLOAD_BYTES)
    for lane in np.flatnonzero(faults.sound & (chunks > 1) & ~is_valid).tolist():
        limit = f"a chunk of a message of up to {codecs.MAX_PAYLOAD_BYTES} bytes"
        found = f"chunk {chunk_id[lane]} of {chunks[lane]} of {size[lane]} bytes"
        faults.add(lane, limit, found)
