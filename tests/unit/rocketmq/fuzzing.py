"""Damages commit logs at random, and says what may become of them.

`check` reads a log that `damage` has changed, and raises AssertionError unless

    every offset that was written comes with its row or is reported as lost, never both,
    so the rows and the entries of the losses are as many as the rows that were written;
    a row is the one that was written, except for columns that nothing is known of, see
    UNCHECKED: these have what the changed bytes mean, by `reference`;
    one whose bytes were not is lost only where damage on both sides of it leaves its
    offset without a witness;
    each run alone becomes what it does with all others;
    in memory.

What no reader can know is not required: nothing but the body has a checksum, as
docs/connectors/rocketmq.md says.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparkcache_rocketmq import codecs
from sparkcache_rocketmq.testing import Codec, Message, coda

from .logs import Found, Log, write
from .reference import CAP_BYTES, BadRecordError, Row, read_record

MOST_BYTES = 64 << 20
"""What reading a damaged log may take beside what is there already."""

KINDS = 4

UNCHECKED = {
    "__tags",
    "__keys",
    "__uniqKey",
    "__properties",
    "__flag",
    "__bornTimestamp",
    "__storeTimestamp",
    "__bornHost",
    "__storeHost",
    "__reconsumeTimes",
}

_NUMBERS = [0, 1, 2, 3, 90, 91, 127, 128, 255, 256, 32767, 32768, 65535, 1 << 20]
_NUMBERS += [(1 << 31) - 1, 1 << 31, (1 << 31) + 91, (1 << 32) - 1, (1 << 63) - 1]
_FIELDS = [(0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 8), (28, 8), (36, 4)]
_FIELDS += [(40, 8), (48, 8), (56, 8), (64, 8), (72, 4), (84, 4)]


@dataclass(frozen=True)
class Case:
    """A seed, and what follows from it."""

    seed: int

    def __str__(self) -> str:
        return str(self.seed)


@cache
def original(kind: int) -> Log:
    """Return a log with everything that records may be; of the first kind, plain.

    Of the last kind, what takes several offsets is there once, otherwise once for each.
    """
    random_ = random.Random(kind)
    messages = [_message(random_, kind) for _ in range(60)]
    return write(
        messages,
        topic="Topic",
        queue_id=7,
        first=1000,
        repeats_batches=kind != KINDS - 1,
    )


def _message(random_: random.Random, kind: int) -> Message:
    body = random_.randbytes(random_.choice([0, 1, 10, 100, 1000]))
    if kind == 0:
        return Message(body, tags="T", keys=f"k{random_.randrange(100)}")
    inner = tuple(
        Message(random_.randbytes(5), tags="I", flag=n)
        for n in range(random_.choice([0] * 12 + [1, 2, 4]))
    )
    return Message(
        body,
        tags=random_.choice([None, "T", "täg"]),
        unique_key=random_.choice([None, "U" * 32]),
        properties=random_.choice([(), (("a", "b"), ("c", "d"))]),
        has_last_separator=random_.random() < 0.7,
        codec=random_.choice([Codec.NONE] * 3 + list(Codec)),
        born_host=random_.choice(["1.2.3.4:5", "[::5]:6"]),
        store_host=random_.choice(["1.2.3.4:5", "[1:2::5]:6"]),
        flag=random_.randrange(1 << 31),
        inner=inner,
    )


def damage(case: Case) -> Log:
    """Return a log that one or more things were done to."""
    random_ = random.Random(case.seed)
    log = original(random_.randrange(KINDS))
    data = bytearray(log.data)
    for _ in range(random_.choice([1, 1, 1, 2, 3, 8])):
        _damage(random_, log, data)
    return Log(
        bytes(data),
        log.rows,
        log.places,
        log.topic,
        log.queue_id,
        log.first,
        max(len(log.data), len(data)),
    )


def _damage(random_: random.Random, log: Log, data: bytearray) -> None:
    place, size = random_.choice(list(log.places.values()))
    at = random_.randrange(len(log.data))
    length = random_.choice([1, 2, 4, 8, 20, 200, 2000])
    match random_.randrange(16):
        case 0 | 1:
            _overwrite(data, at, bytes([random_.randrange(256)]))
        case 2:
            bit = 1 << random_.randrange(8)
            _overwrite(data, at, bytes([log.data[at] ^ bit]))
        case 3 | 4 | 5:
            field, width = random_.choice(_FIELDS)
            number = random_.choice(_NUMBERS)
            if random_.random() < 0.5:
                old = int.from_bytes(log.data[place + field :][:width], "big")
                number = old + random_.choice([-91, -2, -1, 1, 2, 3, 91, size])
            mask = (1 << 8 * width) - 1
            _overwrite(data, place + field, (number & mask).to_bytes(width, "big"))
        case 6:
            _overwrite(data, at, bytes(length))
        case 7:
            _overwrite(data, at, random_.randbytes(length))
        case 8:
            other, _ = random_.choice(list(log.places.values()))
            _overwrite(data, place, log.data[other : other + size])
        case 9:
            after = place + size - random_.randrange(40)
            _overwrite(data, after, random_.randbytes(random_.choice([1, 2, 4])))
        case 10 | 12:
            _overwrite_fields(random_, log, data)
        case 13 | 14:
            found = [n for n in range(place, place + size) if log.data[n] in (1, 2)]
            _overwrite(data, random_.choice(found or [at]), random_.randbytes(1))
        case 15:
            _overwrite(data, place, coda(0) * random_.choice([1, 3]))
        case _:
            del data[at : at + random_.choice([1, length, len(data)])]


def _overwrite_fields(random_: random.Random, log: Log, data: bytearray) -> None:
    """Overwrite a field of records that follow each other by what no broker writes."""
    field, new = random_.choice(
        [
            (52, b"\0\1\0\0"),  # the port of the first host, if it has 4 bytes
            (56, b"\xff" * 8),  # the store time
            (68, b"\xff" * 4),  # the port of the second host
            (72, b"\x80"),  # reconsume times
            (36, b"\0\0\3\0"),  # flags
            (36, b"\0\0\0\x40"),
        ]
    )
    first = random_.choice(list(log.places))
    for offset in range(first, first + random_.choice([1, 2, 4])):
        if offset in log.places:
            _overwrite(data, log.places[offset][0] + field, new)


def _overwrite(data: bytearray, at: int, new: bytes) -> None:
    new = new[: max(0, len(data) - at)]
    data[at : at + len(new)] = new


def check(case: Case) -> Found:
    """Read a damaged log; raise AssertionError if that is not as it should be."""
    log = damage(case)
    random_ = random.Random(case.seed)
    entries = random_.choice([1, 2, 5, 16, 1000])
    codecs.MAX_BODY_BYTES, before = CAP_BYTES, codecs.MAX_BODY_BYTES
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    resident = _resident()
    try:
        found = log.read(entries, most=random_.choice([13, 1000, 1 << 20]))
        alone = log.read_each(entries)
    finally:
        codecs.MAX_BODY_BYTES = before
    taken = _resident() - resident
    assert taken <= MOST_BYTES, f"it takes {taken >> 20} MiB"
    assert alone.rows == found.rows
    assert sorted(alone.lost) == sorted(found.lost)
    _judge(log, found, entries)
    return found


def _resident() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def _judge(log: Log, found: Found, entries: int) -> None:
    lost = found.lost
    assert len(lost) == len(set(lost)), "an offset is lost twice"
    offsets = [int(str(row["__queueOffset"])) for row in found.rows]
    assert offsets == sorted(set(offsets)), "offsets do not ascend"
    assert sorted(lost + offsets) == sorted(log.places), "offsets are not all there"
    accounted = sum(loss.rows or 0 for loss in found.losses)
    assert len(found.rows) + accounted == len(log.rows), "losses are understated"
    for row, offset in zip(found.rows, offsets, strict=True):
        _judge_row(log, row, offset)
    for offset in lost:
        assert _may_be_lost(log, offset, entries), f"{offset} is lost without need"


def _is_changed(log: Log, offset: int) -> bool:
    """Return whether anything was done to one of the records that have an offset."""
    whole = original_of(log).data
    return any(
        log.data[place : place + size] != whole[place : place + size]
        for place, size in _places(log, offset)
    )


def original_of(log: Log) -> Log:
    """Return what a log was before it was damaged."""
    return original(_kind(log))


def _kind(log: Log) -> int:
    return next(kind for kind in range(KINDS) if original(kind).rows is log.rows)


def _judge_row(log: Log, row: Row, offset: int) -> None:
    written = log.rows[offset - log.first]
    if row == written:
        return
    wrong = {name for name in written if row[name] != written[name]}
    unchecked = UNCHECKED | ({"value"} if _is_of_old_client(log, offset) else set())
    assert wrong <= unchecked, f"{sorted(wrong - unchecked)} of {offset}: {row}"
    meant: list[Row] = []
    for place, _ in _places(log, offset):
        with suppress(BadRecordError):
            meant += read_record(log.data, place, log.topic, "broker-a", log.queue_id)
    assert row in meant, f"{row} is none of {meant}"


def _is_of_old_client(log: Log, offset: int) -> bool:
    """Return whether one bit alone says that the body is compressed."""
    place, _ = log.places[offset]
    flag = int.from_bytes(original_of(log).data[place + 36 :][:4], "big")
    return flag & 0x701 == 1


def _may_be_lost(log: Log, offset: int, entries: int) -> bool:
    if _is_changed(log, offset) or _is_torn(log, offset, entries):
        return True
    first, last = _record(log, offset)
    before = first - 1
    is_first = first == log.first or _is_changed(log, before)
    is_first |= _is_torn(log, before, entries)
    after = last == log.last or _is_changed(log, last + 1)
    return after and (is_first or _is_batch(log, offset))


def _record(log: Log, offset: int) -> tuple[int, int]:
    """Return the first and the last offset of what was written as one message."""
    return _records(_kind(log))[offset]


@cache
def _records(kind: int) -> dict[int, tuple[int, int]]:
    log = original(kind)
    found: dict[int, tuple[int, int]] = {}
    for offset, (place, _) in log.places.items():
        rows = read_record(log.data, place, log.topic, "broker-a", log.queue_id)
        found[offset] = rows[0]["__queueOffset"], rows[-1]["__queueOffset"]
    return found


def _is_batch(log: Log, offset: int) -> bool:
    place, _ = log.places[offset]
    flag = int.from_bytes(original_of(log).data[place + 36 :][:4], "big")
    return flag & 0xC0 == 0xC0


def _places(log: Log, offset: int) -> set[tuple[int, int]]:
    first, last = _record(log, offset)
    return {log.places[other] for other in range(first, last + 1)}


def _is_torn(log: Log, offset: int, entries: int) -> bool:
    """Return whether it is of an inner batch that is there once, for several runs."""
    if offset < log.first:
        return False
    first, last = _record(log, offset)
    is_once = first < last and log.places[first] == log.places[last]
    return is_once and (first - log.first) // entries != (last - log.first) // entries


def campaign(seconds: float, seed: int = 0) -> tuple[int, list[str]]:
    """Try cases for a while; return how many, and failures."""
    random_ = random.Random(seed)
    end, cases, failed = time.monotonic() + seconds, 0, list[str]()
    while time.monotonic() < end:
        case = Case(random_.randrange(1 << 48))
        cases += 1
        try:
            check(case)
        except Exception as error:
            failed.append(f"FUZZ_CASE={case}: {type(error).__name__}: {error}")
    return cases, failed
