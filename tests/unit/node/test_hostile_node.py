"""Whatever a node sends, a task reads the right rows, and nothing is left behind.

To try more cases, for FUZZ_SECONDS of the environment:

    FUZZ_SECONDS=600 python -m pytest -m long tests/unit/node/test_hostile_node.py

and to try one again: FUZZ_CASE=7 python -m pytest ... -k again
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sparkcache.connector import DecodedRun
from sparkcache.memory.encoded import EncodedRun
from sparkcache.metrics import Metrics
from sparkcache.model import Segment, Slot
from sparkcache.node.messages import (
    Clear,
    Finish,
    Grant,
    KeepAlive,
    MetricsReply,
    Refused,
    Served,
    ServedFromSegment,
    Streamed,
    Take,
)
from tests.effort import tries
from tests.unit.node.client_world import SCHEMA, Node, read
from tests.unit.node.hostile import (
    MAKE,
    changed,
    conversation,
    frame,
    frame_of,
    memfd,
    open_descriptors,
    send,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.fetch import Scan
    from sparkcache.node.address import Address
    from sparkcache.node.channel import Channel
    from sparkcache.node.messages import Message

CASES = 400
SEGMENT = Segment(0, 1 << 16)
OWN = [KeepAlive(), KeepAlive(), Refused("no"), MetricsReply(Metrics(hits=7))]
FOREIGN = [Take(0, 0), Finish(), Clear(), Grant(Slot(4096))]
ALL_SEALS = 15
FIXED = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def encoded(number: int, batches: int) -> bytes:
    """A run of some batches, the last with a number, as it lies in memory."""
    parts = [*[[] for _ in range(batches - 1)], [number]]
    run = DecodedRun(
        [pa.record_batch([pa.array(part, pa.int64())], schema=SCHEMA) for part in parts]
    )
    sink = pa.BufferOutputStream()
    EncodedRun(run, SCHEMA).write(sink)
    return bytes(sink.getvalue())


def damaged(pick: random.Random) -> bytes:
    """The run that is asked for, cut, or something else instead.

    Bytes that are changed within a run are not tried: it has no checksum.
    """
    data = encoded(2, pick.randint(1, 3))
    match pick.randrange(5):
        case 0:
            return data[: pick.randrange(len(data))]
        case 1:
            return pick.randbytes(len(data))
        case 2:
            return bytes(len(data))
        case 3:
            return data[:8] + pick.randbytes(len(data) - 8)
        case _:
            return data[: 8 * pick.randrange(len(data) // 8)]


def wrong_run(pick: random.Random) -> tuple[Message, int]:
    """Return a run that is not what the message says, and its descriptor."""
    data = damaged(pick)
    size_bytes = pick.choice([len(data), 0, -1, 1, 2**40, len(data) - 8, 2**63 - 1])
    return Served(size_bytes), memfd(data, pick.choice([ALL_SEALS, 0, FIXED, 1]))


def wrong_stream(pick: random.Random) -> tuple[Message, int]:
    """Return a run through a pipe that is not whole."""
    reading, writing = os.pipe()
    os.write(writing, damaged(pick))
    os.close(writing)
    return Streamed(), reading


def wrong_slot(pick: random.Random) -> tuple[Message, int]:
    """Return a place in a segment that has no such run."""
    data = damaged(pick)
    slot = Slot(
        pick.choice([len(data), 0, -64, 64, 2**40]),
        pick.choice([SEGMENT, None, Segment(7, 64)]),
        pick.choice([0, 64, -64, len(data), 2**40]),
    )
    number = pick.choice([0, None, 7])
    fd = memfd(data or b"\0", pick.choice([FIXED, FIXED, 0, ALL_SEALS]))
    return ServedFromSegment((slot,) * pick.randint(0, 2), number), fd


def wrong_kind(pick: random.Random) -> tuple[Message, int]:
    """Return a message with a descriptor that is no run and no pipe of one."""
    message = pick.choice(
        [Served(4096), Streamed(), ServedFromSegment((Slot(64, SEGMENT),), 0)]
    )
    return message, MAKE[pick.choice(list(MAKE))]()


WRONG: list[Callable[[random.Random], tuple[Message, int]]]
WRONG = [wrong_run, wrong_stream, wrong_slot, wrong_kind]


def answer(case: int, sock: socket.socket) -> None:
    """Send the third answer of a case."""
    pick = random.Random(case)
    if pick.random() < 0.4:
        for piece in conversation(pick, OWN, FOREIGN):
            send(sock, piece)
        return
    message, fd = pick.choice(WRONG)(pick)
    is_changed = pick.random() < 0.2
    data = frame(changed(pick, message), 1) if is_changed else frame_of(message, 1)
    try:
        socket.send_fds(sock, [data], [fd])
    finally:
        os.close(fd)


def check(case: int, scan: Scan, address: Address) -> None:
    """Read four runs from a node whose third answer is that of the case."""

    def third(channel: Channel[Any]) -> None:
        answer(case, channel._socket)
        channel.close()

    before = open_descriptors()
    with closing(Node(address, third)):
        found = read(scan)
    assert found == [0, 1, 2, 3], found
    left = [what for fd, what in open_descriptors().items() if fd not in before]
    assert not left, left


def failures(scan: Scan, address: Address, cases: range, end_s: float) -> list[str]:
    failed = []
    for case in cases:
        try:
            check(case, scan, address)
        except Exception as error:
            failed.append(f"FUZZ_CASE={case}: {type(error).__name__}: {error}")
        if time.monotonic() > end_s:
            break
    return failed


def test_whatever_a_node_sends(scan: Scan, address: Address) -> None:
    failed = failures(scan, address, range(tries(CASES)), float("inf"))
    assert not failed, "\n".join(failed)


def test_again(scan: Scan, address: Address) -> None:
    check(int(os.environ.get("FUZZ_CASE", "7")), scan, address)


@pytest.mark.long
def test_whatever_a_node_sends_for_long(scan: Scan, address: Address) -> None:
    first = time.time_ns()
    end_s = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "600"))
    failed = failures(scan, address, range(first, first + 10**9), end_s)
    assert not failed, "\n".join(failed)
