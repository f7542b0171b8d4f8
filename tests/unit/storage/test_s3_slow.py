"""Bodies that arrive slowly, from an HTTP server that sends them piece by piece."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import StorageConfig
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.connector import Storage

ETAG = "0123456789abcdef"
DATA = random.Random(1).randbytes(300_000)
URI = "s3://bucket/name"
SAID = (
    "within requestTimeout=0.2 s, fewer than 65536: a longer requestTimeout allows a "
    "slower network, 2 times"
)


@dataclass
class SlowServer:
    """What a server sends.

    Attributes:
        at_once: Bytes of a body that are sent without a pause.
        piece_bytes: Bytes that are sent before each further pause.
        pause_s: The pauses.
        slow: How many responses are slow; later ones are not.
        ranges: The requested ranges.

    """

    endpoint: str = ""
    at_once: int = 0
    piece_bytes: int = 1
    pause_s: float = 0.02
    slow: int = 1000
    ranges: list[str] = field(default_factory=list)

    def open(self, request_timeout_s: float) -> Storage:
        config = StorageConfig(
            endpoint=self.endpoint,
            path_style=True,
            region="us-east-1",
            anonymous=True,
            storage_attempts=2,
            storage_timeout_s=5,
            request_timeout_s=request_timeout_s,
        )
        return open_storage("s3://bucket", config, Traffic())

    def read(self, request_timeout_s: float = 0.2) -> bytes:
        """Read the object as a range."""
        planned = ObjectId(URI, len(DATA), ETAG)
        stream = self.open(request_timeout_s).open(planned, 0, len(DATA))
        pieces = []
        try:
            while piece := stream.read(1 << 20):
                pieces.append(piece)
        finally:
            stream.close()
        return b"".join(pieces)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for them
    sending: SlowServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        begin = int(wanted.removeprefix("bytes=").partition("-")[0] or "0")
        body = DATA[begin:]
        sending = self.server.sending
        sending.ranges.append(wanted)
        is_slow = len(sending.ranges) <= sending.slow
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", f'"{ETAG}"')
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 18:00:00 GMT")
        self.send_header("Content-Range", f"bytes {begin}-{len(DATA) - 1}/{len(DATA)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(OSError):  # the client hangs up
            self._send(body, sending.at_once if is_slow else len(body))

    def _send(self, body: bytes, at: int) -> None:
        sending = self.server.sending
        self.wfile.write(body[:at])
        while at < len(body):
            self.wfile.flush()
            time.sleep(sending.pause_s)
            self.wfile.write(body[at : at + sending.piece_bytes])
            at += sending.piece_bytes

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def slow(pauses: list[float]) -> Iterator[SlowServer]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        server.sending = SlowServer(endpoint)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.sending
        finally:
            server.shutdown()
            thread.join()


def test_a_body_that_drips_is_given_up(slow: SlowServer) -> None:
    with pytest.raises(SourceError) as caught:
        slow.read()
    assert caught.value.found.endswith(SAID)
    assert len(slow.ranges) == 2


def test_the_body_of_a_whole_object_that_drips_is_given_up(slow: SlowServer) -> None:
    with pytest.raises(SourceError) as caught:
        slow.open(request_timeout_s=0.2).get(URI)
    assert caught.value.found.endswith(SAID)
    assert len(slow.ranges) == 2


@pytest.mark.parametrize("at_once", [0, 1000, 100_000])
def test_the_rest_of_a_body_that_drips_is_requested(
    slow: SlowServer, at_once: int
) -> None:
    slow.at_once, slow.slow = at_once, 1
    assert slow.read() == DATA
    first, rest = slow.ranges
    assert first == f"bytes=0-{len(DATA) - 1}"
    assert int(rest.removeprefix("bytes=").partition("-")[0]) >= at_once


def test_a_steady_body_is_read_in_one_request_however_long_it_takes(
    slow: SlowServer,
) -> None:
    slow.piece_bytes, slow.pause_s = 40_000, 0.15
    begun_s = time.monotonic()
    assert slow.read(request_timeout_s=0.6) == DATA
    assert time.monotonic() - begun_s > 0.6
    assert len(slow.ranges) == 1


def test_a_reader_that_pauses_is_no_slow_network(slow: SlowServer) -> None:
    slow.at_once = len(DATA)
    planned = ObjectId(URI, len(DATA), ETAG)
    stream = slow.open(request_timeout_s=0.05).open(planned, 0, len(DATA))
    pieces = [stream.read(1000)]
    time.sleep(0.2)
    while piece := stream.read(1000):
        pieces.append(piece)
    stream.close()
    assert b"".join(pieces) == DATA
    assert len(slow.ranges) == 1


def test_responses_that_each_bring_a_little_are_given_up(slow: SlowServer) -> None:
    slow.at_once = 40_000
    with pytest.raises(SourceError, match="2 times"):
        slow.read()
    assert len(slow.ranges) == 2


def test_responses_that_each_bring_enough_are_progress(slow: SlowServer) -> None:
    slow.at_once = 70_000
    assert slow.read() == DATA
    assert len(slow.ranges) > 2
