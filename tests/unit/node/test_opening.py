"""What a task says first: all that it means, and each ledger once."""

from __future__ import annotations

import math
import random
import socket
import string
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.fetch.scan import RunSlice, Scan
from sparkcache.model import Extent, Ledger, ObjectId, ReadToken, Run
from sparkcache.node.channel import Channel
from sparkcache.node.messages import PROTOCOL_VERSION, FromTask, Open, ToTask
from sparkcache.node.packed_open import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = "".join(random.Random(1).choices(string.ascii_letters, k=1 << 20))
FILE = Ledger("delta", "s3://lake#t", 7, ObjectId("s3://lake/a", 9, "1"), LARGE)
OTHER = replace(FILE, decoding="with other rows deleted")
RUNS = Run(0, 4), Run(5, 9)


def run_slice(ledger: Ledger, at: int) -> RunSlice:
    return RunSlice(ledger, Extent(0, 9, at * 100, 100), RUNS, 0, 2, at * 100)


def opening(*slices: RunSlice, following: tuple[RunSlice, ...] = ()) -> Open:
    return Open(
        PROTOCOL_VERSION,
        Scan("s3://lake", CacheConfig().storage, CacheConfig().scan, slices),
        ReaderIdentity(ReadToken(1, 2), "scan", Consumer("s3://lake#t"), math.inf),
        3,
        CacheConfig().node,
        (),
        tuple(enumerate(following, start=1)),
        "t",
    )


@pytest.fixture
def ends() -> Iterator[tuple[Channel[Any], Channel[Any]]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with (
        closing(Channel[Any](ours, ToTask)) as task,
        closing(Channel[Any](theirs, FromTask)) as node,
    ):
        yield task, node


def test_a_ledger_of_many_slices_is_sent_once(
    ends: tuple[Channel[Any], Channel[Any]],
) -> None:
    """All would be more than a message may have."""
    task, node = ends
    said = opening(
        *(run_slice(FILE, at) for at in range(40)),
        run_slice(OTHER, 40),
        following=(run_slice(FILE, 41),),
    )
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(task.send, packed(said))
        message, _ = node.receive()
        sending.result()
    heard = unpacked(message)
    assert heard == said
    assert len(msgspec.msgpack.encode(message)) < len(LARGE) + (16 << 10)
    first, *_, last = heard.scan.slices
    assert first.ledger is heard.following[0][1].ledger
    assert last.ledger == OTHER


@pytest.mark.parametrize("number", [-1, 1])
def test_a_missing_ledger(number: int) -> None:
    message = packed(opening(run_slice(FILE, 0)))
    (part,) = message.parts
    wrong = msgspec.structs.replace(
        message, parts=(msgspec.structs.replace(part, ledger=number),)
    )
    with pytest.raises(ValueError, match=f"ledger {number} of a message with 1"):
        unpacked(wrong)
