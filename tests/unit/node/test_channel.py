"""Messages and descriptors over a socket: whole, in order, none lost, none leaked."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sparkcache.metrics import Metrics
from sparkcache.model import Segment, Slot
from sparkcache.node.channel import (
    AsyncChannel,
    BrokenChannelError,
    Channel,
    Frames,
    PatientChannel,
)
from sparkcache.node.messages import (
    Failed,
    Message,
    MetricsReply,
    Refused,
    Served,
    ServedFromSegment,
    ToTask,
)
from tests.effort import tries

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES: list[Message] = [
    Served(4096),
    Refused("no " * 1000),
    MetricsReply(Metrics(hits=7)),
    Failed("s3://bucket/key", None, "this", "that"),
    Served(1),
    ServedFromSegment((Slot(4096, Segment(0, 1 << 20), 64),) * 300, 0),
]
SENDABLE = [
    (message, has_fd)
    for message in MESSAGES
    for has_fd in (False, message.carries_descriptor)
]


class Pair:
    """Two connected sockets."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(Pair()) as pair:
        yield pair


def frames(*messages: Message) -> bytes:
    """What a channel sends, without descriptors."""
    with closing(Pair()) as pair:
        channel: Channel[Any] = Channel(pair.ours, ToTask)
        for message in messages:
            channel.send(message)
        return pair.theirs.recv(1 << 20)


def new_fd() -> int:
    return os.open("/dev/zero", os.O_RDONLY)


def inode(fd: int) -> int:
    return os.fstat(fd).st_ino


@given(cuts=st.lists(st.integers(0, len(frames(*MESSAGES)))))
def test_frames_may_be_cut_anywhere(cuts: list[int]) -> None:
    data, found = frames(*MESSAGES), []
    receiving: Frames[Message] = Frames(ToTask)
    places = [0, *sorted(cuts), len(data)]
    for begin, end in pairwise(places):
        receiving.feed(data[begin:end], [])
        found += list(receiving.messages())
    assert found == [(message, None) for message in MESSAGES]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff\xff\x00", id="longer than any message"),
        pytest.param(b"\x01\x00\x00\x00\x02\xc0", id="two descriptors"),
        pytest.param(b"\x01\x00\x00\x00\x00\xc1", id="not msgpack"),
        pytest.param(b"\x00\x00\x00\x00\x00", id="nothing"),
        pytest.param(
            frames(Served(1)).replace(b"Served", b"Serves"), id="no such message"
        ),
        pytest.param(
            frames(Served(1))[:4] + b"\x01" + frames(Served(1))[5:],
            id="a descriptor that did not come",
        ),
        pytest.param(
            frames(Refused("x")).replace(b"x", b"\xff"), id="text that is not UTF-8"
        ),
        pytest.param(
            b"\x21\x27\x00\x00\x00\x93\xa7Refused\xa1x" + b"\x91" * 10_006,
            id="deep nesting",
        ),
    ],
)
def test_nonsense_breaks_the_channel_and_leaks_nothing(pair: Pair, data: bytes) -> None:
    fd = new_fd()
    first = frames(Refused("first"))
    if data[4] == 1:
        pair.theirs.sendall(first)
    else:
        socket.send_fds(pair.theirs, [first], [fd])
    os.close(fd)
    pair.theirs.sendall(data)
    pair.theirs.close()
    channel: Channel[Message] = Channel(pair.ours, ToTask)
    with closing(channel), pytest.raises(BrokenChannelError):
        list(iter(channel.receive, None))


@pytest.mark.parametrize(
    ("data", "descriptors", "error"),
    [
        pytest.param(
            frames(Refused("x")), 2, "belong to no message", id="not announced"
        ),
        pytest.param(
            frames(Refused("x"))[:4] + b"\x01" + frames(Refused("x"))[5:],
            1,
            "Refused with a descriptor",
            id="a message that carries none",
        ),
    ],
)
def test_descriptors_that_nobody_wants_break_the_channel(
    pair: Pair, data: bytes, descriptors: int, error: str
) -> None:
    fd = new_fd()
    socket.send_fds(pair.theirs, [data], [fd] * descriptors)
    os.close(fd)
    channel: Channel[Message] = Channel(pair.ours, ToTask)
    with closing(channel), pytest.raises(BrokenChannelError, match=error):
        channel.receive()


def test_descriptors_arrive_with_their_messages(pair: Pair, tmp_path: Any) -> None:
    fds = [os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in "abc"]
    sending: Channel[Any] = Channel(pair.theirs, ToTask)
    receiving: Channel[Message] = Channel(pair.ours, ToTask)
    for number, fd in enumerate(fds):
        sending.send(Refused("without"))
        sending.send(Served(number), fd)
    for number, fd in enumerate(fds):
        assert receiving.receive() == (Refused("without"), None)
        message, received = receiving.receive()
        assert message == Served(number)
        assert received is not None
        assert inode(received) == inode(fd)
        assert not os.get_inheritable(received)
        os.close(received)
        os.close(fd)
    sending.close()
    with pytest.raises(BrokenChannelError, match="gone"):
        receiving.receive()
    receiving.close()


def test_descriptors_that_nobody_took_are_closed(pair: Pair) -> None:
    sending: Channel[Any] = Channel(pair.theirs, ToTask)
    receiving: Channel[Message] = Channel(pair.ours, ToTask)
    fd = new_fd()
    for number in range(3):
        sending.send(Served(number), fd)
    os.close(fd)
    _, received = receiving.receive()
    assert received is not None
    os.close(received)
    receiving.close()
    with pytest.raises(BrokenChannelError, match="while sending"):
        sending.send(Served(1))


def test_silence_breaks_a_channel_with_a_time_limit(pair: Pair) -> None:
    pair.ours.settimeout(0.01)
    channel: Channel[Message] = Channel(pair.ours, ToTask)
    with pytest.raises(BrokenChannelError, match="timed out"):
        channel.receive()


def test_what_is_too_long_is_not_sent(pair: Pair) -> None:
    channel: Channel[Any] = Channel(pair.ours, ToTask)
    with pytest.raises(BrokenChannelError, match="bytes, limit"):
        channel.send(Refused("x" * (17 << 20)))


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Listener:
    """The node's side of a connection, and what it hears."""

    def __init__(
        self, sock: socket.socket, kind: type[AsyncChannel[Message]] = AsyncChannel
    ) -> None:
        self.heard: list[Message] = []
        self.times_closed = 0
        self.channel = kind(
            asyncio.get_running_loop(),
            sock,
            ToTask,
            on_message=self.hear,
            on_close=self.on_close,
        )

    def hear(self, message: Message, fd: int | None) -> None:
        if fd is not None:
            os.close(fd)
        self.heard.append(message)
        if message == Refused("raise"):
            raise ValueError("a defect")
        if message == Refused("close"):
            self.channel.close()
            self.channel.send(Served(1))

    def on_close(self) -> None:
        self.times_closed += 1

    async def until_closed(self) -> None:
        async with asyncio.timeout(5):
            while not self.times_closed:
                await asyncio.sleep(0)


@settings(max_examples=tries(20))
@given(messages=st.lists(st.sampled_from(SENDABLE), max_size=600))
def test_the_node_sends_all_however_slowly_it_is_read(
    messages: list[tuple[Message, bool]],
) -> None:
    async def scenario() -> None:
        pair = Pair()
        listener = Listener(pair.ours)
        fd = new_fd()
        for message, has_fd in messages:
            listener.channel.send(message, fd if has_fd else None)
        os.close(fd)
        receiving: Channel[Message] = Channel(pair.theirs, ToTask)
        loop = asyncio.get_running_loop()
        for message, has_fd in messages:
            found, received = await loop.run_in_executor(None, receiving.receive)
            assert (found, received is not None) == (message, has_fd)
            if received is not None:
                os.close(received)
        receiving.close()
        await listener.until_closed()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(frames(Refused("raise")), id="a defect"),
        pytest.param(frames(Refused("close")), id="hanging up in the middle"),
        pytest.param(b"\xff" * 99, id="nonsense"),
        pytest.param(b"\x01", id="the end in the middle of a frame"),
    ],
)
def test_whatever_happens_the_node_closes_a_connection_once(
    pair: Pair, last: bytes
) -> None:
    async def scenario() -> Listener:
        listener = Listener(pair.ours)
        fd = new_fd()
        for _ in range(3):
            Channel[Any](pair.theirs, ToTask).send(Served(1), fd)
        os.close(fd)
        pair.theirs.sendall(last + frames(Served(9)) if len(last) > 1 else last)
        pair.theirs.close()
        await listener.until_closed()
        listener.channel.close()
        listener.channel.send(Served(1))
        await asyncio.sleep(0)
        return listener

    listener = asyncio.run(scenario())
    assert listener.times_closed == 1
    assert listener.heard[:3] == [Served(1)] * 3
    assert Served(9) not in listener.heard


def test_a_patient_connection_ends_when_the_other_side_ends_it(pair: Pair) -> None:
    async def scenario() -> Listener:
        listener = Listener(pair.ours, PatientChannel)
        receiving: Channel[Message] = Channel(pair.theirs, ToTask)
        listener.channel.close()
        with pytest.raises(BrokenChannelError, match="the peer is gone"):
            receiving.receive()
        fds = open_descriptors()
        fd = new_fd()
        for _ in range(3):
            receiving.send(Served(1), fd)
            await asyncio.sleep(0.01)
        os.close(fd)
        assert open_descriptors() == fds
        assert listener.times_closed == 0, "it may still map what it was sent"
        receiving.close()
        await listener.until_closed()
        return listener

    listener = asyncio.run(scenario())
    assert (listener.times_closed, listener.heard) == (1, [])


@pytest.mark.parametrize("message", [Served(1), Refused("x" * (1 << 20))])
def test_a_peer_that_receives_nothing_is_given_up(pair: Pair, message: Message) -> None:
    async def scenario() -> None:
        listener = Listener(pair.ours)
        for _ in range(5000):
            listener.channel.send(message)
        await listener.until_closed()
        listener.channel.close()

    asyncio.run(scenario())


def test_close_is_not_reported_within_send(pair: Pair) -> None:
    async def scenario() -> None:
        listener = Listener(pair.ours)
        pair.theirs.close()
        listener.channel.send(Served(1))  # nobody is there
        listener.channel.send(Refused("x" * (17 << 20)))
        assert listener.times_closed == 0
        await listener.until_closed()

    asyncio.run(scenario())
