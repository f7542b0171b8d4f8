"""The messages of many batches, found at once and one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from sparkcache_pulsar import batch_starts
from sparkcache_pulsar.batch_starts import find_starts
from sparkcache_pulsar.batches import message_starts
from sparkcache_pulsar.protobuf import SLACK_BYTES
from sparkcache_pulsar.testing import bytes_field, varint_field

LOOKALIKES = (
    b"\0\0\0\x06\x18\x05",
    b"\0\0\0\x0a",
    b"\0\0\0\x0c\x12\x02ab\x18\x01",
    b"\0",
)


def message(metadata: bytes, value: bytes) -> bytes:
    metadata += varint_field(3, len(value)) + varint_field(8, 5)
    return len(metadata).to_bytes(4, "big") + metadata + value


@dataclass
class Batches:
    """Batches with other bytes before, between and after them."""

    buffer: bytes = b""
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    limit: list[int] = field(default_factory=list)

    def add(self, batch: bytes, limit: int, after: bytes = b"") -> None:
        self.start.append(len(self.buffer))
        self.end.append(len(self.buffer) + len(batch))
        self.limit.append(limit)
        self.buffer += batch + after

    def found(self, shift: int = 0) -> tuple[list[int], list[int]]:
        """Find messages where the buffer lies at an even or odd address."""
        stored = np.frombuffer(bytes(shift) + self.buffer + b"\xff" * 16, np.uint8)
        bounds = (np.array(of, np.int64) for of in (self.start, self.end, self.limit))
        counts, starts = find_starts(stored[shift:], *bounds)
        return counts.tolist(), starts.tolist()

    def walked(self) -> tuple[list[int], list[int]]:
        counts, starts = [], []
        for start, end, limit in zip(self.start, self.end, self.limit, strict=True):
            payload = self.buffer[start:end] + b"\xff" * SLACK_BYTES
            walked = message_starts(payload, limit)
            counts.append(-1 if walked is None else len(walked))
            starts += [start + at for at in walked or ()]
        return counts, starts


def any_message(random_: random.Random) -> bytes:
    metadata = b""
    for _ in range(random_.choice([0, 0, 0, 1, 3])):
        pair = bytes_field(1, b"name") + bytes_field(2, random_.randbytes(9))
        metadata += bytes_field(1, pair)
    if random_.random() < 0.4:
        metadata += bytes_field(2, random_.randbytes(random_.choice([0, 3, 40])))
    if random_.random() < 0.02:
        metadata += bytes_field(1, random_.randbytes(300))
    size = random_.choice([0, 1, 5, 100, 127, 128, 300, 2000])
    value = random_.randbytes(size)
    if random_.random() < 0.1:
        value = (random_.choice(LOOKALIKES) * size)[: min(size, 40)]
    return message(metadata, value)


def any_batches(random_: random.Random) -> Batches:
    batches = Batches(random_.randbytes(random_.randrange(8)))
    for _ in range(random_.randrange(1, 8)):
        messages = [
            any_message(random_) for _ in range(random_.choice([0, 1, 2, 10, 40]))
        ]
        batch = bytearray(b"".join(messages))
        if batch and random_.random() < 0.05:
            batch[random_.randrange(len(batch))] ^= 1 << random_.randrange(8)
        limit = max(0, len(messages) + random_.choice([0] * 8 + [1, 5, -1]))
        after = random_.choice([b"", random_.randbytes(30), bytes(7), *messages[:1]])
        batches.add(bytes(batch), limit, after)
    return batches


@pytest.mark.parametrize("shift", [0, 1])
def test_the_messages_found_are_those_of_a_walk(shift: int) -> None:
    for seed in range(400):
        batches = any_batches(random.Random(seed))
        assert batches.found(shift) == batches.walked(), f"seed {seed}"


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([message(b"", b"v" * 100)] * 50, id="values of one size"),
        pytest.param(
            [message(bytes_field(2, b"k" * n), b"v" * 13 * n) for n in range(1, 90)],
            id="keys and values of any size",
        ),
        pytest.param(
            [message(bytes_field(1, b"p" * 20) * 3, b"v" * 300)] * 20, id="properties"
        ),
        pytest.param([message(b"", b"")] * 100, id="no values"),
        pytest.param(
            [message(b"", b"\0\0\0\x06\x18\x05abc" + b"v" * 50)] * 30,
            id="values that look like messages",
        ),
        pytest.param([message(b"", b"v" * 20_000), message(b"", b"")] * 9, id="large"),
    ],
)
def test_usual_batches_are_not_walked(
    messages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(b"other bytes")
    for count in (len(messages), 1, len(messages)):
        batches.add(b"".join(messages[:count]), count, after=b"headers")
    expected = batches.walked()
    monkeypatch.setattr(batch_starts, "message_starts", None)
    monkeypatch.setattr(batch_starts, "_MAX_MEAN_BYTES", 1 << 20)
    assert batches.found() == expected


def test_batches_that_are_mostly_zeros() -> None:
    batches = Batches()
    batches.add(message(b"", bytes(3000)) * 20, 20)
    batches.add(message(b"", b"v" * 50) * 20, 20)
    assert batches.found() == batches.walked() == ([20, 20], batches.walked()[1])


def test_no_batches() -> None:
    assert Batches(b"bytes").found() == ([], [])
