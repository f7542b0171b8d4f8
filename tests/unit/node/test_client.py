"""A task whose node lies, dies, is silent or is not there: its result is the same."""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.errors import CredentialsError, SourceError
from sparkcache.fetch import Scan
from sparkcache.fetch.direct_load import DirectLoad
from sparkcache.memory.encoded import EncodedRun
from sparkcache.metrics import Metrics
from sparkcache.model import Slot
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.client import read_scan
from sparkcache.node.messages import (
    Failed,
    Finish,
    KeepAlive,
    LoadDirectly,
    LoadedDirectly,
    MetricsReply,
    PackedOpen,
    Refused,
    Served,
    ServedFromSegment,
    Streamed,
    Take,
)
from tests.unit.node.client_world import (
    CONFIG,
    READER,
    RUNS,
    SCHEMA,
    SEGMENT,
    Node,
    hand_over,
    new_segment,
    read,
    run_of,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def place(channel: Channel[Any]) -> None:
    fd, slots = new_segment(2)
    hand_over(channel, ServedFromSegment(slots, SEGMENT.number), fd)


def place_two(channel: Channel[Any]) -> None:
    fd, slots = new_segment(2, 3)
    hand_over(channel, ServedFromSegment(slots, SEGMENT.number), fd)


def place_without_segment(channel: Channel[Any]) -> None:
    fd, slots = new_segment(2)
    os.close(fd)
    channel.send(ServedFromSegment(slots))


def place_beyond_the_end(channel: Channel[Any]) -> None:
    fd, [slot] = new_segment(2)
    hand_over(
        channel,
        ServedFromSegment((slot._replace(offset=SEGMENT.size_bytes),), SEGMENT.number),
        fd,
    )


def place_in_what_may_shrink(channel: Channel[Any]) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    hand_over(channel, ServedFromSegment((Slot(64, SEGMENT),), SEGMENT.number), fd)


def serve_patiently(channel: Channel[Any]) -> None:
    for _ in range(3):
        channel.send(KeepAlive())
    serve(channel, 2)


def stream(channel: Channel[Any]) -> None:
    read_end, write_end = os.pipe()
    hand_over(channel, Streamed(), read_end)
    with os.fdopen(write_end, "wb") as sink:
        EncodedRun(run_of(2), SCHEMA).write(sink)


def serve_unsealed(channel: Channel[Any]) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    hand_over(channel, Served(4096), fd)


def serve_nonsense(channel: Channel[Any]) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, b"nonsense" * 512)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 15)
    hand_over(channel, Served(4096), fd)


def break_a_pipe(channel: Channel[Any]) -> None:
    read_end, write_end = os.pipe()
    hand_over(channel, Streamed(), read_end)
    os.close(write_end)


def die(channel: Channel[Any]) -> None:
    channel.close()


REST = DirectLoad(0, first=2, stop=4, begin=2, end=4, offset=2, end_offset=4)


@pytest.mark.parametrize(
    "third",
    [
        pytest.param(serve_patiently, id="late, but it was patient"),
        pytest.param(stream, id="through a pipe"),
        pytest.param(place, id="in a segment"),
    ],
)
def test_a_task_reads_what_its_node_gives(
    scan: Scan,
    address: Address,
    caplog: pytest.LogCaptureFixture,
    third: Callable[[Channel[Any]], None],
) -> None:
    with closing(Node(address, third)) as node:
        assert read(scan) == [0, 1, 2, 3]
    assert caplog.records == []
    opening, *takes, finish = node.heard
    assert isinstance(opening, PackedOpen)
    assert [take.read for take in takes] == [(), ((0, 0),), ((0, 1),), ((0, 2),)]
    assert finish.read == ((0, 3),)
    released = [place for said in (*takes, finish) for place in said.released]
    assert sorted(released) == [
        (0, n) for n in range(RUNS - 1) if n != 2 or third != stream
    ]


def test_a_task_does_not_ask_for_what_it_was_given_already(
    scan: Scan, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Node(address, place_two)) as node:
        assert read(scan) == [0, 1, 2, 3]
    assert caplog.records == []
    _, *takes, finish = node.heard
    assert [take.index for take in takes] == [0, 1, 2]
    assert finish.read == ((0, 2), (0, 3))


@pytest.mark.parametrize(
    ("third", "reason"),
    [
        pytest.param(die, "gone", id="it dies"),
        pytest.param(lambda _: None, "timed out", id="it is silent"),
        pytest.param(
            lambda channel: channel.send(Refused("so there")),
            "so there",
            id="it refuses",
        ),
        pytest.param(
            lambda channel: channel.send(MetricsReply(Metrics())),
            "unexpected reply",
            id="it babbles",
        ),
        pytest.param(
            lambda channel: channel.send(Served(4096)),
            "unexpected reply",
            id="no descriptor",
        ),
        pytest.param(
            lambda channel: channel._socket.sendall(b"\xff" * 99),
            "frame",
            id="nonsense",
        ),
        pytest.param(serve_unsealed, "not sealed", id="a run that is not sealed"),
        pytest.param(serve_nonsense, "4096 bytes", id="an invalid run"),
        pytest.param(place_without_segment, "Slot", id="a segment it has not sent"),
        pytest.param(place_beyond_the_end, "Slot", id="beyond a segment's end"),
        pytest.param(place_in_what_may_shrink, "shrink", id="what may shrink"),
        pytest.param(
            lambda channel: channel.send(ServedFromSegment(())),
            "unexpected reply",
            id="no slot",
        ),
        pytest.param(break_a_pipe, "pipe", id="a pipe that breaks"),
        pytest.param(
            lambda channel: channel.send(Finish()), "not decode", id="what tasks say"
        ),
    ],
)
def test_whatever_the_node_does_the_result_is_the_same(
    scan: Scan,
    address: Address,
    caplog: pytest.LogCaptureFixture,
    third: Callable[[Channel[Any]], None],
    reason: str,
) -> None:
    with closing(Node(address, third)):
        assert read(scan, request_timeout_s=0.2) == [0, 1, 2, 3]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("continuing without the cache")
    assert reason in record.getMessage()


def tell(*loads: DirectLoad) -> Callable[[Channel[Any]], None]:
    return lambda channel: channel.send(LoadDirectly(loads))


def tell_and_die(channel: Channel[Any]) -> None:
    tell(REST)(channel)
    channel.close()


def test_a_task_loads_what_its_node_tells_it_and_reports_that(
    scan: Scan, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Node(address, tell(REST))) as node:
        assert read(scan) == [0, 1, 2, 3]
    assert caplog.records == []
    opening, *takes, loaded, finish = node.heard
    assert opening.can_load
    assert [take.index for take in takes] == [0, 1, 2]
    assert isinstance(loaded, LoadedDirectly)
    assert loaded.offsets == (2, 3)
    assert (loaded.gets, loaded.received_bytes) == (1, 2)
    assert all(size > 0 for size in loaded.sizes)
    assert finish.read == ()


def test_a_task_asks_again_after_what_it_was_to_load(
    scan: Scan, address: Address
) -> None:
    with closing(Node(address, tell(replace(REST, stop=3)))) as node:
        assert read(scan) == [0, 1, 2, 3]
    _, *messages = node.heard
    assert [type(it) for it in messages] == [*[Take] * 3, LoadedDirectly, Take, Finish]


def test_a_task_that_leaves_early_reports_what_it_has_spent(
    scan: Scan, address: Address
) -> None:
    with closing(Node(address, tell(REST))) as node:
        runs = read_scan(scan, reader=READER, epoch=0, settings=CONFIG.node, plans=())
        for _ in range(3):
            next(runs)
        runs.close()  # type: ignore[attr-defined]
    loaded = node.heard[-1]
    assert (loaded.sizes, loaded.gets) == ((), 1)


@pytest.mark.parametrize(
    "third",
    [
        pytest.param(tell_and_die, id="it dies"),
        pytest.param(tell(), id="nothing to load"),
        pytest.param(lambda c: tell(replace(REST, stop=9))(c), id="more than there is"),
        pytest.param(lambda c: tell(replace(REST, run_slice=1))(c), id="another slice"),
        pytest.param(lambda c: tell(replace(REST, first=3))(c), id="a later run"),
        pytest.param(lambda c: tell(replace(REST, begin=4))(c), id="begun too late"),
        pytest.param(lambda c: tell(replace(REST, end_offset=9))(c), id="too long"),
        pytest.param(lambda c: tell(replace(REST, offset=-1))(c), id="no offset"),
    ],
)
def test_whatever_the_node_says_is_to_be_loaded_the_result_is_the_same(
    scan: Scan, address: Address, third: Callable[[Channel[Any]], None]
) -> None:
    with closing(Node(address, third)):
        assert read(scan) == [0, 1, 2, 3]


def test_an_object_that_has_changed_fails_a_task_that_loads_itself(
    scan: Scan, address: Address
) -> None:
    Path(scan.root.removeprefix("file://"), "data").write_bytes(b"other")
    with (
        closing(Node(address, tell(REST))),
        pytest.raises(SourceError, match="overwritten"),
    ):
        read(scan)


def test_what_the_storage_refused_the_node_is_not_asked_for_again(
    scan: Scan, address: Address
) -> None:
    failure = Failed("file:///data", 2, "a byte", "none")
    node = Node(address, lambda channel: channel.send(failure))
    with closing(node), pytest.raises(SourceError, match="at byte 2: expected a byte"):
        read(scan)


def test_a_task_reads_with_its_own_credentials_if_those_of_the_node_are_refused(
    scan: Scan, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    refused = CredentialsError("s3://bucket/1", expected="valid ones", found="expired")
    failure = Failed.from_error(refused)
    with closing(Node(address, lambda channel: channel.send(failure))):
        assert read(scan) == [0, 1, 2, 3]
    [record] = caplog.records
    assert "the node was refused: s3://bucket/1" in record.getMessage()


def test_a_node_that_ends_before_the_last_message_is_ignored(
    scan: Scan, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    class Ending(Node):
        def _answer(self, channel: Channel[Any], index: int) -> None:
            serve(channel, index)
            if index == RUNS - 1:
                channel.close()

    with closing(Ending(address, die)):
        assert read(scan) == [0, 1, 2, 3]
    assert caplog.records == []


def test_a_task_that_is_given_up_hangs_up(scan: Scan, address: Address) -> None:
    with closing(Node(address, die)) as node:
        runs = read_scan(scan, reader=READER, epoch=0, settings=CONFIG.node, plans=())
        next(runs)
        runs.close()  # type: ignore[attr-defined]
    assert not any(isinstance(message, Finish) for message in node.heard)


@pytest.mark.parametrize(
    ("enabled", "warnings"),
    [
        pytest.param(False, 0, id="without a cache nobody is asked"),
        pytest.param(True, 1, id="outside of an executor"),
    ],
)
def test_reading_without_a_node(
    scan: Scan,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    enabled: bool,
    warnings: int,
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert read(scan, enabled=enabled) == [0, 1, 2, 3]
    assert len(caplog.records) == warnings
