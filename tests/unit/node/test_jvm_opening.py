"""How a reader in the JVM opens a partition, and how runs reach it."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from sparkcache.cache import CachedRun
from sparkcache.config import DECIDES_CONF, PLANS_CONF, CacheConfig
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.fetch.scan import RunSlice, Scan
from sparkcache.model import (
    Extent,
    Ledger,
    ObjectId,
    ReadToken,
    Run,
    RunKey,
    Slot,
)
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    FromTask,
    KeepAlive,
    Open,
    OpenPartition,
    Refused,
    RunAt,
    ServedAt,
    Streamed,
    StreamedAt,
)
from sparkcache.node.opening import PathPeer, opened, pack
from sparkcache.node.task_settings import encode_plans

if TYPE_CHECKING:
    from sparkcache.node.messages import Message

FILE = Ledger("delta", "s3://lake#t", 7, ObjectId("s3://lake/a", 9, "1"), "decoding")
OTHER = replace(FILE, id=8)
RUNS = Run(0, 4), Run(5, 9)
CONSUMER = Consumer("s3://lake#t")
KEY = RunKey(FILE, RUNS[0])


def run_slice(ledger: Ledger, at: int) -> RunSlice:
    return RunSlice(ledger, Extent(0, 9, at * 100, 100), RUNS, 0, 2, at * 100)


def planned(
    base: CacheConfig | None = None, options: dict[str, str] | None = None
) -> bytes:
    return pack(
        PROTOCOL_VERSION,
        "s3://lake",
        base,
        options or {},
        (run_slice(FILE, 0), run_slice(OTHER, 1)),
        ((5, run_slice(FILE, 2)),),
        CONSUMER,
        "scan",
        4,
        1000,
        "t",
    )


def sent(message: OpenPartition) -> OpenPartition:
    """Return what the node receives."""
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=FromTask)
    assert isinstance(received, OpenPartition)
    return received


def test_it_means_what_a_task_in_python_says() -> None:
    base = CacheConfig(max_bytes=1 << 20, endpoint="http://minio:9000")
    properties = {
        "spark.sparkcache.policy": "lru",
        "spark.sql.execution.id": "3",
        PLANS_CONF: encode_plans(()),
        DECIDES_CONF: "true",
    }
    message = OpenPartition(planned(base, {"runBytes": "64k"}), 7, 2, properties)
    config = replace(base, policy="lru")
    assert opened(sent(message)) == Open(
        PROTOCOL_VERSION,
        Scan(
            "s3://lake",
            config.storage,
            replace(config, run_bytes=64 << 10).scan,
            (run_slice(FILE, 0), run_slice(OTHER, 1)),
        ),
        ReaderIdentity(ReadToken(7, 2, 4), "scan", CONSUMER, 1000),
        7,
        config.node,
        (),
        ((5, run_slice(FILE, 2)),),
        "t",
        2,
    )


def test_a_job_without_the_conf_of_a_session_changes_no_settings() -> None:
    opening = opened(OpenPartition(planned(), 7, 2, {}))
    assert opening is not None
    assert (opening.epoch, opening.authority) == (-1, 0)


def test_the_partitions_of_a_stage_are_read_under_the_same_settings() -> None:
    """They are not resolved again: that takes longer than all else."""
    base = CacheConfig(max_bytes=1 << 20)
    message = sent(OpenPartition(planned(base), 7, 2, base.to_conf()))
    first = opened(message)
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        second = opened(message)
    finally:
        sys.setprofile(before)
    assert first == second
    assert first is not None
    assert calls < 50


def test_each_scan_and_each_session_has_its_own_settings() -> None:
    def settings_of(
        base: CacheConfig, options: dict[str, str], properties: dict[str, str]
    ) -> tuple[int, float, str | None, int]:
        opening = opened(OpenPartition(planned(base, options), 7, 2, properties))
        assert opening is not None
        node, scan = opening.settings, opening.scan
        region, run_bytes = scan.storage.region, scan.config.run_bytes
        return node.max_bytes, node.ttl_create_s, region, run_bytes

    small, large = CacheConfig(max_bytes=1 << 20), CacheConfig(max_bytes=1 << 30)
    ttl_s, run_bytes = small.ttl_create_s, small.run_bytes
    here = {"region": "here"}
    slow = {"spark.sparkcache.ttlCreate": "99s"}
    for _ in range(2):
        assert settings_of(small, {}, {}) == (1 << 20, ttl_s, None, run_bytes)
        assert settings_of(large, {}, {}) == (1 << 30, ttl_s, None, run_bytes)
        assert settings_of(small, here, {})[2:] == ("here", run_bytes)
        assert settings_of(small, {"runBytes": "8k"}, {})[2:] == (None, 8 << 10)
        assert settings_of(small, {}, slow)[:2] == (1 << 20, 99)


def test_stages_have_their_own_epochs() -> None:
    properties = {"spark.sql.execution.id": "3"}
    epochs = []
    for stage in (7, 8, 7):
        opening = opened(OpenPartition(planned(), stage, 2, properties))
        assert opening is not None
        epochs.append((opening.epoch, opening.reader.token))
    assert epochs == [(stage, ReadToken(stage, 2, 4)) for stage in (7, 8, 7)]


@pytest.mark.parametrize("option", ["scan", "session"])
def test_a_session_without_a_cache_opens_nothing(option: str) -> None:
    options = {"enabled": "false"} if option == "scan" else {}
    properties = {"spark.sparkcache.enabled": "false"} if option == "session" else {}
    message = OpenPartition(planned(options=options), 7, 2, properties)
    assert opened(message) is None


@pytest.mark.parametrize(
    ("payload", "properties"),
    [
        (b"", {}),
        (b"\xc1", {}),
        (msgspec.msgpack.encode((PROTOCOL_VERSION,)), {}),
        (planned(), {"spark.sparkcache.maxBytes": "much"}),
        (planned(), {PLANS_CONF: "{"}),
    ],
)
def test_what_cannot_be_decoded(payload: bytes, properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="a planned partition: "):
        opened(OpenPartition(payload, 7, 2, properties))


class Recorder:
    """A peer that keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.is_closed = False

    def send(self, message: Message, fd: int | None = None) -> None:
        assert fd is None
        self.messages.append(message)

    def close(self) -> None:
        self.is_closed = True


def test_runs_are_sent_by_their_paths() -> None:
    recorder = Recorder()
    peer = PathPeer(recorder)
    peer.send(KeepAlive())
    runs = {(0, 7): CachedRun(KEY, 17, Slot(100)), (1, 0): CachedRun(KEY, 18, Slot(9))}
    peer.send_runs(runs)
    served = ServedAt(os.getpid(), (RunAt(0, 7, 100, 17), RunAt(1, 0, 9, 18)))
    assert recorder.messages == [KeepAlive(), served]


def test_a_pipe_can_be_opened_until_the_next_message() -> None:
    recorder = Recorder()
    peer = PathPeer(recorder)
    reading, writing = os.pipe()
    peer.send(Streamed(), reading)
    os.close(reading)  # as the node does, once it is sent
    os.write(writing, b"run")
    os.close(writing)
    (message,) = recorder.messages
    assert isinstance(message, StreamedAt)
    with open(f"/proc/{message.pid}/fd/{message.fd}", "rb") as pipe:  # noqa: PTH123
        assert pipe.read() == b"run"
    peer.take_back()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(message.fd)


def test_stored_bytes_are_reported_once() -> None:
    recorder = Recorder()
    peer = PathPeer(recorder)
    peer.charge(3)
    peer.charge(4)
    reading, writing = os.pipe()
    peer.send(Streamed(), reading)
    peer.charge(5)
    peer.send_runs({})
    peer.send_runs({})
    reports = [
        message.stored_bytes
        for message in recorder.messages
        if isinstance(message, StreamedAt | ServedAt)
    ]
    assert reports == [7, 5, 0]
    peer.close()
    os.close(reading)
    os.close(writing)


def test_a_pipe_is_closed_with_the_connection() -> None:
    recorder = Recorder()
    peer = PathPeer(recorder)
    reading, writing = os.pipe()
    peer.send(Streamed(), reading)
    os.close(reading)
    (message,) = recorder.messages
    assert isinstance(message, StreamedAt)
    assert stat.S_ISFIFO(os.fstat(message.fd).st_mode)
    peer.close()
    assert recorder.is_closed
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"run")
    os.close(writing)


def test_without_a_descriptor_left_a_run_is_refused() -> None:
    recorder = Recorder()
    PathPeer(recorder).send(Streamed(), 1 << 20)
    (message,) = recorder.messages
    assert isinstance(message, Refused)
    assert "no descriptor" in message.reason
