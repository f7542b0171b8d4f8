"""What an entry's bytes mean, decoded one by one in the plainest way.

Shares nothing with the connector but the codecs, so that for any bytes, however they
were made, one can be checked against the other.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import google_crc32c
import numpy as np

from sparkcache_pulsar import codecs
from sparkcache_pulsar.testing import varint_field

from .topics import TXN_ABORT, TXN_COMMIT

Row = dict[str, Any]
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
MAX_FIELDS = 20_000
MAX_MESSAGES = 1 << 20
_FIXED = {FIXED64: 8, FIXED32: 4}
_MOST_MS = (1 << 63) // 1000 - 1

METADATA = {
    **dict.fromkeys((2, 3, 8, 9, 11, 12, 17, 19, 20, 22, 23, 25), VARINT),
    **dict.fromkeys((27, 28, 29, 30, 31), VARINT),
    **dict.fromkeys((1, 4, 5, 6, 13, 14, 15, 16, 18, 26), DELIMITED),
}
IN_BATCH = {
    **dict.fromkeys((3, 4, 5, 6, 8, 9, 10), VARINT),
    **dict.fromkeys((1, 2, 7), DELIMITED),
}
BROKER = {1: VARINT, 2: VARINT}
PAIR = {1: DELIMITED, 2: DELIMITED}


class BadEntryError(Exception):
    """Bytes are not what they should be: the entry has to be given up."""


@dataclass(frozen=True)
class Field:
    """A field of a protobuf message, and where it lies."""

    number: int
    wire_type: int
    start: int
    value_start: int
    content_start: int
    end: int
    value: int

    def content(self, data: bytes) -> bytes:
        return data[self.content_start : self.end]


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    value = 0
    for count in range(10):
        if at + count >= len(data):
            raise BadEntryError("a varint has no end")
        byte = data[at + count]
        if count == 9 and byte > 1:
            raise BadEntryError("a varint of more than 64 bits")
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise BadEntryError("a varint of more than ten bytes")


def fields(data: bytes, known: Mapping[int, int] | None = None) -> list[Field]:
    """Return the fields of a message; `known` says which wire types they must have."""
    found: list[Field] = []
    at = 0
    while at < len(data):
        if len(found) == MAX_FIELDS:
            raise BadEntryError("too many fields")
        tag, value_start = varint_at(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not 8 <= tag < 1 << 32 or (known or {}).get(number, wire_type) != wire_type:
            raise BadEntryError(f"tag {tag}")
        value, content = 0, value_start
        if wire_type in (VARINT, DELIMITED):
            value, content = varint_at(data, value_start)
            end = content + (value if wire_type == DELIMITED else 0)
        elif wire_type in _FIXED:
            end = content + _FIXED[wire_type]
        else:
            raise BadEntryError(f"wire type {wire_type}")
        if end > len(data):
            raise BadEntryError("a field has no end")
        found.append(Field(number, wire_type, at, value_start, content, end, value))
        at = end
    return found


class _Message:
    """A parsed message; of a field that comes twice the last one counts."""

    def __init__(self, data: bytes, known: Mapping[int, int]) -> None:
        self._data = data
        self._fields = fields(data, known)

    def all(self, number: int) -> list[Field]:
        return [field for field in self._fields if field.number == number]

    def number(self, number: int) -> int | None:
        found = self.all(number)
        return found[-1].value if found else None

    def signed(self, number: int) -> int | None:
        value = self.number(number)
        return None if value is None else _signed(value)

    def is_true(self, number: int) -> bool:
        return bool(self.number(number))

    def content(self, number: int) -> bytes | None:
        found = self.all(number)
        return found[-1].content(self._data) if found else None

    def properties(self, number: int) -> dict[str, str]:
        pairs = {}
        for field in self.all(number):
            pair = _Message(field.content(self._data), PAIR)
            key, value = pair.content(1), pair.content(2)
            if key is None or value is None:
                raise BadEntryError("half a property")
            pairs[_text(key)] = _text(value)
        return pairs

    def payload_size(self) -> int:
        """Return it if readers that look for nothing else find the same."""
        for field in self._fields:
            if field.number == 3:
                break
            if field.value_start > field.start + 1 or field.wire_type in _FIXED:
                raise BadEntryError("something strange before the size")
        sizes = {field.value for field in self.all(3)}
        is_plain = all(f.value_start == f.start + 1 for f in self.all(3)[:1])
        if len(sizes) != 1 or not is_plain:
            raise BadEntryError("no size, or two")
        return sizes.pop()


def decode_entry(data: bytes, ledger: int, entry: int) -> list[Row] | None:
    """Return the rows of an entry, some of the columns; None if it must be lost."""
    try:
        return _decode(data, ledger, entry)
    except BadEntryError:
        return None


def _decode(data: bytes, ledger: int, entry: int) -> list[Row]:
    at = 0
    broker = _Message(b"", BROKER)
    if data[:2] == b"\x0e\x02" and len(data) >= 6:
        at = 6 + int.from_bytes(data[2:6], "big")
        if at > len(data):
            raise BadEntryError("short broker metadata")
        broker = _Message(data[6:at], BROKER)
    if data[at : at + 2] == b"\x0e\x01" and len(data) >= at + 6:
        at += 6
        if google_crc32c.value(data[at:]) != int.from_bytes(data[at - 4 : at], "big"):
            raise BadEntryError("checksum")
    start = at + 4
    stop = start + int.from_bytes(data[at:start], "big")
    if stop > len(data):
        raise BadEntryError("short metadata")
    metadata = _Message(data[start:stop], METADATA)
    if None in (metadata.content(1), metadata.number(2), metadata.number(3)):
        raise BadEntryError("a required field is missing")
    if metadata.all(13):
        raise BadEntryError("encrypted")
    chunks, marker = metadata.signed(27) or 0, metadata.number(20)
    is_chunk = chunks > 1
    if is_chunk and not (
        metadata.all(26)
        and 0 <= (metadata.signed(29) or 0) < chunks
        and 0 <= (metadata.signed(28) or 0) <= codecs.MAX_PAYLOAD_BYTES
    ):
        raise BadEntryError("a chunk of what")
    is_part = is_chunk or marker in (TXN_COMMIT, TXN_ABORT)
    payload = data[stop:]
    codec, size = metadata.number(8) or 0, metadata.number(9) or 0
    if codec and size > codecs.MAX_PAYLOAD_BYTES:
        raise BadEntryError("too large")
    if marker is not None and marker not in (TXN_COMMIT, TXN_ABORT):
        return []
    if codec and not is_part:
        payload = _decompress(codec, payload, size)
    shared = {
        "__publishTime": _time(metadata.signed(3)),
        "__brokerPublishTime": _time(broker.signed(1)),
        "__producerName": _text(metadata.content(1) or b""),
        "__schemaVersion": metadata.content(16) or None,
        "__txn": None
        if (most := metadata.signed(23)) is None
        else f"({most},{metadata.signed(22) or 0})",
        "__replicatedFrom": _text_or_none(metadata.content(5)),
        "__deliverAt": _time(metadata.signed(19)),
    }
    index, batch_size = broker.signed(2), metadata.signed(11)
    rows = []
    messages = [(-1, metadata, b"")] if is_part else _messages(metadata, payload)
    for number, message, value in messages:
        is_single = message is metadata
        key = message.content(6 if is_single else 2)
        properties = message.properties(4 if is_single else 1)
        if message.is_true(30 if is_single else 10):
            key = None
        if key is not None and message.is_true(17 if is_single else 6):
            key = _base64(key)
        if not is_single and message.is_true(4):
            continue
        event = message.signed(12 if is_single else 5)
        sequence = message.signed(2 if is_single else 8)
        following = 0 if is_single else (batch_size or 0) - 1 - number
        rows.append(
            {
                **shared,
                "__batchIndex": None if is_single else number,
                "__messageId": _message_id(ledger, entry, number, batch_size),
                "__eventTime": _time(
                    (metadata.signed(12) if event is None else event) or None
                ),
                "__index": None
                if index is None
                else _signed((index - following) & ((1 << 64) - 1)),
                "__key": key,
                "__orderingKey": message.content(18 if is_single else 7),
                "__sequenceId": metadata.signed(2) if sequence is None else sequence,
                "__properties": properties,
                "value": None if message.is_true(25 if is_single else 9) else value,
            }
        )
    return [] if is_part else rows  # what it is a part of is tested elsewhere


def _messages(
    metadata: _Message, payload: bytes
) -> Sequence[tuple[int, _Message, bytes]]:
    size = metadata.signed(11)
    if size is None:
        return [(-1, metadata, payload)]
    found: list[tuple[_Message, bytes]] = []
    at = 0
    while at < len(payload) and len(found) < min(size, MAX_MESSAGES):
        start = at + 4
        stop = start + int.from_bytes(payload[at:start], "big")
        if stop > len(payload):
            raise BadEntryError("a short batch")
        message = _Message(payload[start:stop], IN_BATCH)
        at = stop + message.payload_size()
        found.append((message, payload[stop:at]))
    listed = [_signed(field.value) for field in metadata.all(31)]
    if at != len(payload) or not (len(found) == size or 0 < len(found) == len(listed)):
        raise BadEntryError("another number of messages")
    shared = len(metadata.content(1) or b"") + len(metadata.content(16) or b"")
    if shared * len(found) > codecs.MAX_PAYLOAD_BYTES:
        raise BadEntryError("much that each row would repeat")
    indexes: Sequence[int] = range(len(found))
    if len(listed) == len(found):
        indexes = listed
        if any(not 0 <= index < size for index in indexes):
            raise BadEntryError("indexes beyond the batch")
        if any(one >= other for one, other in pairwise(listed)):
            raise BadEntryError("indexes that do not ascend")
    if size >= 1 << 31:
        raise BadEntryError("a size that is no int32")
    return [(index, *message) for index, message in zip(indexes, found, strict=True)]


def _message_id(ledger: int, entry: int, index: int, batch_size: int | None) -> bytes:
    message_id = varint_field(1, ledger) + varint_field(2, entry)
    if batch_size is not None:
        message_id += varint_field(4, index)
    return message_id + varint_field(6, batch_size or 0)


def _decompress(codec: int, payload: bytes, size: int) -> bytes:
    target = np.empty(size, np.uint8)
    if codecs.decompress(codec, np.frombuffer(payload, np.uint8), target) is not None:
        raise BadEntryError("payload")
    return target.tobytes()


def _base64(key: bytes) -> bytes:
    try:
        return a2b_base64(key, strict_mode=True)
    except Base64Error as error:
        raise BadEntryError("key") from error


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _text_or_none(value: bytes | None) -> str | None:
    return None if value is None else _text(value)


def _time(millis: int | None) -> int | None:
    """Return microseconds, None beyond what they can be counted in."""
    return None if millis is None or abs(millis) > _MOST_MS else millis * 1000
