"""A run in memory that is not whole, or is damaged, is an error and no shorter run."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from sparkcache.connector import DecodedRun
from sparkcache.errors import CacheUnavailable
from sparkcache.memory.encoded import EncodedRun, decode, unavailable_on_error
from tests.effort import tries

TAGS = pa.list_(pa.uint8())
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("tags", TAGS)])
BATCHES = [
    pa.record_batch([[n, n], ["key", None], [[n], [n, n]]], schema=SCHEMA)
    for n in range(3)
]


def written() -> bytes:
    sink = pa.BufferOutputStream()
    EncodedRun(DecodedRun(BATCHES), SCHEMA).write(sink)
    return bytes(sink.getvalue())


def read(data: bytes) -> list[pa.RecordBatch]:
    with unavailable_on_error("a run"):
        return decode(pa.py_buffer(data)).batches


def test_a_run_may_be_followed_by_other_bytes() -> None:
    assert read(written()) == BATCHES
    assert read(written() + b"\xff" * 64) == BATCHES


def test_a_run_cut_anywhere_is_an_error() -> None:
    data = written()
    for size_bytes in range(len(data)):
        with pytest.raises(CacheUnavailable):
            read(data[:size_bytes])


def test_a_damaged_run_cannot_be_read_past_its_end() -> None:
    pick, data = random.Random(1), written()
    for _ in range(tries(2000)):
        damaged = bytearray(data)
        for _ in range(pick.randint(1, 3)):
            damaged[pick.randrange(len(data))] = pick.choice([0, 1, 127, 128, 255])
        try:
            batches = read(bytes(damaged))
        except CacheUnavailable:
            continue
        for batch in batches:
            batch.validate()
