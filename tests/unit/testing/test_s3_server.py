"""The embedded S3 server: its counts, its faults, and how it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from sparkcache.testing.s3_server import ObjectCount, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = bytes(range(256)) * 40_000  # 10 MB: more than sockets buffer
SIZE = len(DATA)


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with S3Server() as server:
        server.create_bucket("bucket")
        server.put("bucket", "a/name", DATA, {"role": "data"})
        server.put("bucket", "other", b"12345")
        yield server


@pytest.fixture
def server(running: S3Server) -> Iterator[S3Server]:
    running.forget()
    yield running
    running.heal()
    running.behave()


def get(server: S3Server, key: str = "a/name", **wanted: Any) -> bytes:
    response = server.client.get_object(Bucket="bucket", Key=key, **wanted)
    return response["Body"].read()


def test_counts_by_key(server: S3Server) -> None:
    assert get(server) == DATA
    assert get(server, Range="bytes=1000-1999") == DATA[1000:2000]
    assert get(server, "other") == b"12345"
    server.client.head_object(Bucket="bucket", Key="other")
    server.client.list_objects_v2(Bucket="bucket")
    counts = server.counts()
    assert counts["bucket/a/name"] == ObjectCount(gets=2, sent_bytes=SIZE + 1000)
    assert counts["bucket/other"] == ObjectCount(gets=1, sent_bytes=5)
    assert counts["bucket/"].gets == 1
    assert len(counts) == 3
    server.forget()
    assert server.counts() == {}


def test_returns_requests(server: S3Server) -> None:
    get(server, Range="bytes=10-19")
    (request,) = server.requests()
    assert (request.method, request.bucket, request.key) == ("GET", "bucket", "a/name")
    assert (request.range, request.status, request.sent_bytes) == (
        "bytes=10-19",
        206,
        10,
    )
    assert request.region == "us-east-1"


def test_a_body_that_is_closed_early_counts_as_far_as_it_was_sent(
    server: S3Server,
) -> None:
    response = server.client.get_object(Bucket="bucket", Key="a/name")
    assert response["Body"].read(1000) == DATA[:1000]
    response["Body"].close()
    assert 1000 <= server.counts()["bucket/a/name"].sent_bytes < SIZE


def test_keeps_user_metadata(server: S3Server) -> None:
    response = server.client.get_object(Bucket="bucket", Key="a/name")
    response["Body"].close()
    assert response["Metadata"] == {"role": "data"}


def test_respects_if_match(server: S3Server) -> None:
    etag = server.client.head_object(Bucket="bucket", Key="other")["ETag"]
    assert get(server, "other", IfMatch=etag, Range="bytes=0-1") == b"12"
    with pytest.raises(ClientError) as caught:
        get(server, "other", IfMatch='"another"', Range="bytes=0-1")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    server.ignore("If-Match")
    assert get(server, "other", IfMatch='"another"', Range="bytes=0-1") == b"12"


def test_faults_affect_only_as_many_requests_and_keys_as_set(server: S3Server) -> None:
    server.fail("^a/", status=403, code="AccessDenied", times=2)
    assert get(server, "other") == b"12345"
    for _ in range(2):
        with pytest.raises(ClientError, match="AccessDenied"):
            get(server)
    assert get(server) == DATA
    assert server.counts()["bucket/a/name"] == ObjectCount(gets=3, sent_bytes=SIZE)


def test_faults_apply_in_order_until_healed(server: S3Server) -> None:
    server.break_off("other", after_bytes=3)
    server.refuse("other")
    with pytest.raises(BotoCoreError):
        get(server, "other")
    assert server.counts()["bucket/other"] == ObjectCount(gets=1, sent_bytes=3)
    for _ in range(2):
        with pytest.raises(ClientError):
            get(server, "other")
    server.heal()
    assert get(server, "other") == b"12345"


def test_environment_replaces_all_aws_variables(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    with server.as_environment():
        variables = {
            key: os.environ[key] for key in os.environ if key.startswith("AWS_")
        }
        assert variables == server.environment()
    assert os.environ["AWS_PROFILE"] == os.environ["AWS_ACCESS_KEY_ID"] == "mine"
    assert "AWS_ENDPOINT_URL_S3" not in os.environ


def test_repr_has_the_endpoint(server: S3Server) -> None:
    assert repr(server) == f"S3Server({server.endpoint})"
    assert repr(S3Server()) == "S3Server(not running)"


def test_it_runs_only_while_entered() -> None:
    server = S3Server()
    with pytest.raises(RuntimeError, match="not running"):
        server.requests()
    with server:
        assert server.requests() == []
    with pytest.raises(RuntimeError, match="not running"):
        server.requests()


@pytest.mark.parametrize(
    "held", [False, True], ids=["alone", "with a child that holds its pipes"]
)
def test_it_ends_with_its_parent(held: bool) -> None:
    program = f"""
import os, time
from sparkcache.testing.s3_server import S3Server
with S3Server() as server:
    child = os.fork() if {held} else 1
    if child:
        print(server._process.pid, child, flush=True)
    time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid, child = map(int, parent.stdout.readline().split())
    pidfd = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert select.select([pidfd], [], [], 10)[0], "the server has not ended"
    os.close(pidfd)
    if held:
        os.kill(child, signal.SIGKILL)
