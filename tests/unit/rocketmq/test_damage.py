"""What is damaged is reported exactly; everything else comes, under its own offset."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from sparkcache_rocketmq.testing import Message, QueueWriter, coda

from .logs import Log, write

COUNT = 12
SIZES = [300, 0, 41, 1000, 7, 7, 7, 200, 90, 5000, 1, 64]


def log_of(count: int = COUNT, first: int = 100) -> Log:
    messages = (
        Message(bytes([number]) * SIZES[number % COUNT], tags=f"T{number}")
        for number in range(count)
    )
    return write(messages, queue_id=3, first=first)


def overwritten(log: Log, at: int, new: bytes) -> Log:
    log.data = log.data[:at] + new + log.data[at + len(new) :]
    return log


def at(log: Log, entry: int, field: int = 0) -> int:
    return log.places[entry][0] + field


def int32(value: int) -> bytes:
    return struct.pack(">I", value & 0xFFFFFFFF)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


DAMAGE: dict[str, tuple[Callable[[Log], Log], list[int]]] = {
    "a size that is too small": (
        lambda log: overwritten(log, at(log, 104), int32(5)),
        [104],
    ),
    "a size of 0": (lambda log: overwritten(log, at(log, 104), int32(0)), [104]),
    "a size that is too large by 1": (
        lambda log: overwritten(log, at(log, 104), int32(log.places[104][1] + 1)),
        [104],
    ),
    "a size that is too small by 1": (
        lambda log: overwritten(log, at(log, 104), int32(log.places[104][1] - 1)),
        [104],
    ),
    "the size of two records": (
        lambda log: overwritten(log, at(log, 104), int32(at(log, 106) - at(log, 104))),
        [104],
    ),
    "a size beyond the end": (
        lambda log: overwritten(log, at(log, 104), int32(1 << 30)),
        [104],
    ),
    "a size of nearly 2 GiB": (
        lambda log: overwritten(log, at(log, 104), int32((1 << 31) - 1)),
        [104],
    ),
    "a negative size": (lambda log: overwritten(log, at(log, 104), int32(-1)), [104]),
    "another magic": (
        lambda log: overwritten(log, at(log, 104, 4), int32(0xDAA320A8)),
        [104],
    ),
    "the magic of the other version": (
        lambda log: overwritten(log, at(log, 104, 4), int32(0xDAA320AB)),
        [104],
    ),
    "another CRC": (lambda log: overwritten(log, at(log, 104, 8), int32(1)), [104]),
    "a CRC with the bit that is never set": (
        lambda log: overwritten(log, at(log, 101, 8), int32(1 << 31)),
        [101],
    ),
    "another queue": (lambda log: overwritten(log, at(log, 104, 12), int32(4)), [104]),
    "a later offset": (
        lambda log: overwritten(log, at(log, 104, 20), int64(106)),
        [104],
    ),
    "a much later offset": (
        lambda log: overwritten(log, at(log, 104, 20), int64(1 << 40)),
        [104],
    ),
    "an earlier offset": (
        lambda log: overwritten(log, at(log, 104, 20), int64(101)),
        [104],
    ),
    "a negative offset": (
        lambda log: overwritten(log, at(log, 104, 20), int64(-1)),
        [104],
    ),
    "another place": (lambda log: overwritten(log, at(log, 104, 28), int64(0)), [104]),
    "a flag that moves everything": (
        lambda log: overwritten(log, at(log, 104, 36), int32(0x10)),
        [104],
    ),
    "the flag of an inner batch": (
        lambda log: overwritten(log, at(log, 104, 36), int32(0xC0)),
        [104],
    ),
    "a body that is too long": (
        lambda log: overwritten(log, at(log, 104, 84), int32(1 << 20)),
        [104],
    ),
    "a body of nearly 2 GiB": (
        lambda log: overwritten(log, at(log, 104, 84), int32((1 << 31) - 1)),
        [104],
    ),
    "a body of negative length": (
        lambda log: overwritten(log, at(log, 104, 84), int32(-1)),
        [104],
    ),
    "a byte of the body": (
        lambda log: overwritten(log, at(log, 103, 500), b"?"),
        [103],
    ),
    "another topic": (
        lambda log: overwritten(
            log, log.data.index(b"TopicA", at(log, 104)), b"TopicB"
        ),
        [104],
    ),
    "zeros in the place of a record": (
        lambda log: overwritten(log, at(log, 104), bytes(log.places[104][1])),
        [104],
    ),
    "zeros in the place of several": (
        lambda log: overwritten(
            log, at(log, 104, 9), bytes(at(log, 107) - at(log, 104))
        ),
        [104, 105, 106, 107],
    ),
    "zeros over the first": (lambda log: overwritten(log, 0, bytes(50)), [100]),
    "zeros over the last": (
        lambda log: overwritten(log, at(log, 111), bytes(50)),
        [111],
    ),
    "two in two places": (
        lambda log: overwritten(
            overwritten(log, at(log, 102), bytes(8)), at(log, 109), bytes(8)
        ),
        [102, 109],
    ),
    "a copy of the record before": (
        lambda log: overwritten(
            log, at(log, 105), log.data[at(log, 104) : at(log, 105)]
        ),
        [105],
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("entries", [COUNT, 4, 1])
def test_damage_costs_what_it_hit(what: str, entries: int) -> None:
    change, expected = DAMAGE[what]
    log = change(log_of())
    for found in (
        log.read(entries),
        log.read(entries, most=7),
        log.read_each(entries),
    ):
        assert found.lost == expected
        assert found.rows == [
            row for row in log.rows if row["__queueOffset"] not in expected
        ]


def test_a_loss_says_where_and_what() -> None:
    log = overwritten(log_of(), at(log_of(), 104, 4), int32(0x12345678))
    (loss,) = log.read().losses
    assert (loss.ledger, loss.first, loss.last) == (3, 104, 104)
    assert loss.offset == at(log, 104)
    assert loss.uri == log.ledger.object.uri
    assert "0x12345678" in loss.found
    assert "entry 104 of queue 3" in loss.expected


def test_a_crc_that_is_wrong_names_both() -> None:
    log = overwritten(log_of(), at(log_of(), 101, 8), int32(0x11))
    (loss,) = log.read().losses
    assert loss.expected == "a body of crc32 0x00000011"
    assert (loss.found, loss.offset) == ("0x00000000", at(log, 101))


@pytest.mark.parametrize("cut", [1, 64, 90, 91, 155])
@pytest.mark.parametrize("entries", [COUNT, 4, 1])
def test_an_object_that_is_too_short(cut: int, entries: int) -> None:
    log = log_of()
    end = len(log.data) - cut
    log.data = log.data[:end]
    whole = [
        entry for entry, (place, size) in log.places.items() if place + size <= end
    ]
    found = log.read(entries)
    assert [row["__queueOffset"] for row in found.rows] == whole
    assert found.lost == [entry for entry in log.places if entry not in whole]
    assert all(loss.found == "the end of the data" for loss in found.losses)


def test_bytes_that_are_missing_move_all_that_follow() -> None:
    log = log_of()
    start = at(log, 104)
    log.data = log.data[:start] + log.data[start + 1 :]
    assert log.read().lost == list(range(104, 112))


def test_an_index_may_say_more_than_there_is() -> None:
    log = log_of()
    log.rows += [{"__queueOffset": 112}, {"__queueOffset": 113}]
    for found in (log.read(4), log.read_each(4)):
        assert found.lost == [112, 113]
        assert found.rows == log.rows[:COUNT]


def test_offsets_that_nobody_wrote() -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects)
    rows = writer.append([Message(b"a")] * 3)
    writer.next_offset += 5
    rows += writer.append([Message(b"b")] * 3)
    log = Log(objects.popitem()[1], rows, writer.record_ranges)
    log.data = next(data for name, data in objects.items() if "COMMIT" in name)
    log.size_bytes = len(log.data)
    log.rows = [{"__queueOffset": number} for number in range(11)]
    for entries in (11, 4, 1):
        for found in (log.read(entries), log.read_each(entries)):
            assert found.lost == [3, 4, 5, 6, 7]
            assert found.rows == rows


@pytest.mark.parametrize("entries", [40, 8, 3, 1])
def test_records_that_were_not_committed_and_written_again(entries: int) -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects)
    messages = [Message(bytes([number])) for number in range(40)]
    rows = writer.append(messages[:10])
    writer.append_uncommitted(messages[10:30])
    rows += writer.append(messages[10:15])
    writer.append_uncommitted(messages[15:16])
    rows += writer.append(messages[15:])
    data = next(data for name, data in objects.items() if "COMMIT" in name)
    log = Log(data, rows, writer.record_ranges)
    for found in (log.read(entries), log.read_each(entries)):
        assert found.rows == rows
        assert not found.losses


@pytest.mark.parametrize("most", [1, 7, 91, 98, 99, 1 << 20])
def test_codas_are_passed_over(most: int) -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects, has_coda=True)
    rows = []
    for _ in range(3):
        rows += writer.append([Message(b"v")] * 2)
        writer.commit_log.append(coda(1))
    writer.commit_log.commit()
    data = next(data for name, data in objects.items() if "COMMIT" in name)
    assert data.endswith(coda(1))
    log = Log(data, rows, writer.record_ranges)
    for found in (log.read(most=most), log.read(2, most=most), log.read_each(2)):
        assert found.rows == rows
        assert not found.losses


def test_damage_on_both_sides_of_a_coda() -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects)
    rows = writer.append([Message(b"v")] * 3)
    writer.commit_log.append(coda(1))
    rows += writer.append([Message(b"w")] * 3)
    log = Log(
        next(data for name, data in objects.items() if "COMMIT" in name),
        rows,
        writer.record_ranges,
    )
    overwritten(log, at(log, 1), bytes(91))
    overwritten(log, at(log, 4), bytes(91))
    for found in (log.read(), log.read_each(6)):
        assert found.lost == [1, 4]


@pytest.mark.parametrize("magic", [0xDAA320A7, 0xDAA320AB])
def test_a_body_that_looks_like_a_record_is_none(magic: int) -> None:
    inside = write([Message(b"inside")] * 3, queue_id=3, first=100).data
    log = write(
        [Message(b"a"), Message(inside), Message(int32(magic) * 20), Message(b"z")],
        queue_id=3,
        first=100,
    )
    overwritten(log, at(log, 101), int32(7))
    assert log.read().lost == [101]


def test_every_third_record_damaged() -> None:
    log = write([Message(b"v")] * 1_000)
    data = bytearray(log.data)
    for place, _ in list(log.places.values())[1::3]:
        data[place + 4] = 0
    log.data = bytes(data)
    found = log.read(256)
    assert found.lost == list(range(1, 1_000, 3))
    assert len(found.rows) == 1_000 - len(found.lost)


def test_a_batch_does_not_end_the_run_if_the_next_record_is_of_it() -> None:
    """Its own offset is due, what it says to hold is not there; the run ends at 7."""
    inner = (Message(b"one"), Message(b"two"))
    messages = [Message(), Message(inner=inner), Message(b"three"), *[Message()] * 9]
    log = write(messages, first=4, repeats_batches=False)
    place, _ = log.places[5]
    log.data = overwritten(log, place + 20, (6).to_bytes(8, "big")).data
    for found in (log.read(4), log.read_each(4)):
        assert found.lost == [5, 6]
        assert found.rows == [log.rows[0], *log.rows[3:]]


@pytest.mark.parametrize("entry", [4, 5, 6])
def test_a_jump_does_not_end_the_run_if_the_next_record_is_of_it(
    entry: int,
) -> None:
    log = write([Message(b"%d" % n) for n in range(12)], first=4)
    place, _ = log.places[entry]
    log.data = overwritten(log, place + 20, (7).to_bytes(8, "big")).data
    for found in (log.read(4), log.read_each(4)):
        assert found.lost == [entry]
        assert found.rows == [row for row in log.rows if row["__queueOffset"] != entry]
