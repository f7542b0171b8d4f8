"""Reads one record with plain Python: what the connector is compared with.

Written from the description of the format alone: a byte after the other, no numpy, and
nothing of the connector.
"""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import cramjam

Row = dict[str, Any]

CAP_BYTES = 1 << 20


class BadRecordError(Exception):
    """Not a record, or one that cannot be delivered."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def bytes(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise BadRecordError(f"{count} bytes at {self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def int(self, count: int, *, signed: bool = True) -> int:
        return int.from_bytes(self.bytes(count), "big", signed=signed)


def read_record(
    data: bytes, place: int, topic: str, broker: str, queue_id: int
) -> list[Row]:
    """Return the rows of the record at a place; raises BadRecordError."""
    reader = _Reader(data[place:])
    size = reader.int(4, signed=False)
    reader.data = reader.data[:size]
    if len(reader.data) != size:
        raise BadRecordError("size")
    magic, crc = reader.int(4, signed=False), reader.int(4, signed=False)
    queue, flag, offset, where = (reader.int(n) for n in (4, 4, 8, 8))
    if magic not in (0xDAA320A7, 0xDAA320AB) or (queue, where) != (queue_id, place):
        raise BadRecordError("header")
    sys_flag = reader.int(4, signed=False)
    born_time, born_host = reader.int(8), _host(reader, bool(sys_flag & 0x10))
    store_time, store_host = reader.int(8), _host(reader, bool(sys_flag & 0x20))
    reconsumed, _ = reader.int(4), reader.bytes(8)
    body = reader.bytes(reader.int(4))
    name = reader.bytes(reader.int(2 if magic & 0xF == 0xB else 1, signed=False))
    properties = reader.bytes(reader.int(2, signed=False))
    if reader.at != size or name != topic.encode() or offset < 0:
        raise BadRecordError("parts")
    if zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise BadRecordError("crc")
    _require_as_written(sys_flag, store_time, reconsumed, properties)
    if sys_flag & 1:
        body = _decompressed((sys_flag >> 8) & 7, body)
    of_all: Row = {
        "__topic": topic,
        "__broker": broker,
        "__queueId": queue,
        "__bornTimestamp": _time(born_time),
        "__storeTimestamp": _time(store_time),
        "__bornHost": born_host,
        "__storeHost": store_host,
        "__reconsumeTimes": reconsumed,
    }
    if sys_flag & 0xC0 != 0xC0:
        return [{**of_all, **_message(offset, flag, body, properties)}]
    inner = list(_inner(body))
    said = _properties(properties)
    if not inner or said.get("INNER_NUM") != str(len(inner)):
        raise BadRecordError("inner batch")
    if said.get("INNER_BASE", str(offset)) != str(offset):
        raise BadRecordError("inner batch")
    return [
        {**of_all, **_message(number, *message)}
        for number, message in enumerate(inner, offset)
    ]


def _require_as_written(
    sys_flag: int, store_time: int, reconsumed: int, properties: bytes
) -> None:
    """Raise BadRecordError for what no broker writes."""
    if sys_flag & 0xC0 in (0x40, 0x80) or sys_flag & 0x701 in range(0x100, 0x800, 2):
        raise BadRecordError("flags")
    if store_time < 0 or store_time // 1000 >= 253402300800 or reconsumed < 0:
        raise BadRecordError("store time or reconsume times")
    if sys_flag & 0xC0:
        return
    for pair in properties.removesuffix(b"\2").split(b"\2") if properties else ():
        name, separator, _ = pair.partition(b"\1")
        if not separator or name in (b"", b"INNER_NUM"):
            raise BadRecordError("properties")


def _message(offset: int, flag: int, body: bytes, stored: bytes) -> Row:
    properties = _properties(stored)
    return {
        "__queueOffset": offset,
        "__flag": flag,
        "__tags": properties.get("TAGS"),
        "__keys": properties.get("KEYS"),
        "__uniqKey": properties.get("UNIQ_KEY"),
        "__properties": properties,
        "value": body,
    }


def _properties(stored: bytes) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in stored.split(b"\x02"):
        name, separator, value = pair.partition(b"\x01")
        if name and separator and value:
            pairs[name.decode(errors="replace")] = value.decode(errors="replace")
    return pairs


def _inner(body: bytes) -> Any:
    reader = _Reader(body)
    while reader.at < len(body):
        begin = reader.at
        size, _, _, flag = (reader.int(4) for _ in range(4))
        value = reader.bytes(reader.int(4))
        properties = reader.bytes(reader.int(2))
        if reader.at - begin != size:
            raise BadRecordError("inner message")
        yield flag, value, properties


def _host(reader: _Reader, is_ipv6: bool) -> str:
    address = ip_address(reader.bytes(16 if is_ipv6 else 4))
    port = reader.int(4)
    if not 0 <= port < 1 << 16:
        raise BadRecordError("port")
    return f"[{address}]:{port}" if is_ipv6 else f"{address}:{port}"


def _time(millis: int) -> datetime | int | None:
    """Return None beyond what a timestamp can be, and an int beyond Python's."""
    if not -(1 << 63) <= millis * 1000 < 1 << 63:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    except OverflowError:
        return millis * 1000


def _decompressed(codec: int, body: bytes) -> bytes:
    try:
        match codec:
            case 0 | 3:
                stream = zlib.decompressobj()
                data = stream.decompress(body, CAP_BYTES + 1)
                if not stream.eof and len(data) <= CAP_BYTES:
                    raise BadRecordError("zlib")
            case 1:
                data = bytes(cramjam.lz4.decompress(body))
            case 2:
                data = bytes(cramjam.zstd.decompress(body))
            case _:
                raise BadRecordError("codec")
    except (zlib.error, cramjam.DecompressionError, struct.error) as error:
        raise BadRecordError(str(error)) from error
    if len(data) > CAP_BYTES:
        raise BadRecordError("cap")
    return data
