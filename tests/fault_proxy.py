"""A proxy before an S3 server that injects faults and counts what it sends.

Which requests fail, and how, follows from a seed and from the requests alone: the same
request for the same time has the same fault, whatever the order in which they arrive.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum, auto
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparkcache.testing.s3_server import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Headers = list[tuple[str, str]]

_STALL_S = 60.0
_SLOW_PIECES, _SLOW_S = 20, 0.5
_RESET = struct.pack("ii", 1, 0)
_PIECE_BYTES = 64 << 10


class Fault(StrEnum):
    """What happens to a request."""

    INTERNAL_ERROR = auto()
    UNAVAILABLE = auto()
    SLOW_DOWN = auto()
    EXPIRED = auto()
    RESET = auto()
    RESET_WITHIN = auto()
    STALL = auto()
    SLOW = auto()
    SHORT = auto()
    WRONG_ETAG = auto()
    WRONG_BYTES = auto()


_ERRORS = {
    Fault.INTERNAL_ERROR: (500, "InternalError"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.EXPIRED: (400, "ExpiredToken"),
}
_CONNECTION = {"content-length", "connection", "transfer-encoding"}
_OF_OBJECTS = (Fault.WRONG_ETAG, Fault.WRONG_BYTES)


@dataclass(eq=False)
class FaultProxy:
    """The faults that a proxy injects, and its counts.

    Attributes:
        endpoint: URL of the proxy.
        upstream: Host and port of the server.
        rate: Share of the requests that have a fault.
        seed: Decides which requests have which fault.
        faults: The faults that are injected.
        most: How often the same request is made before it has no fault any more.
        requests: Number of requests.
        injected: Number of injected faults, by kind.
        sent_bytes: Bytes of successful responses, by path.

    """

    endpoint: str
    upstream: str
    rate: float = 0.0
    seed: int = 0
    faults: Sequence[Fault] = tuple(Fault)
    most: float = inf
    requests: int = 0
    injected: Counter[Fault] = field(default_factory=Counter)
    sent_bytes: Counter[str] = field(default_factory=Counter)
    _seen: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _connections: set[socket.socket] = field(default_factory=set)

    def fault_of(self, path: str, wanted_range: str) -> tuple[Fault | None, float]:
        """Return the fault of a request, and where in its body it happens, 0 to 1."""
        request = f"{path} {wanted_range}"
        with self._lock:
            self.requests += 1
            self._seen[request] += 1
            pick = random.Random(f"{self.seed} {request} {self._seen[request]}")
            if pick.random() >= self.rate or self._seen[request] > self.most:
                return None, 0
            fault = pick.choice(self.faults)
            if fault in _OF_OBJECTS and not wanted_range:
                return None, 0
            self.injected[fault] += 1
            return fault, pick.random()

    def sent(self, path: str, size_bytes: int) -> None:
        with self._lock:
            self.sent_bytes[path] += size_bytes

    def data_bytes(self) -> int:
        """Return the bytes of data objects that were sent."""
        with self._lock:
            return sum(
                size_bytes
                for path, size_bytes in self.sent_bytes.items()
                if "?" not in path and not path.endswith("-index")
            )

    def open(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(
    endpoint: str,
    *,
    rate: float = 0.0,
    seed: int = 0,
    faults: Sequence[Fault] = tuple(Fault),
    most: float = inf,
) -> Iterator[FaultProxy]:
    """Serve what an S3 server serves, with faults."""
    server = _Server((HOST, 0), _Handler)
    server.proxy = FaultProxy(
        f"http://{HOST}:{server.server_address[1]}",
        urlsplit(endpoint).netloc,
        rate,
        seed,
        faults,
        most,
    )
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}
    )
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        thread.join()
        server.proxy.close()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for them
    request_queue_size = 128
    proxy: FaultProxy

    def handle_error(self, *_: Any) -> None:
        """Report nothing: clients hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy.open(self.connection)
        self._upstream = HTTPConnection(self.server.proxy.upstream)

    def finish(self) -> None:
        self._upstream.close()
        with suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        proxy = self.server.proxy
        fault, place = proxy.fault_of(self.path, self.headers.get("Range", ""))
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            body = f"<Error><Code>{code}</Code></Error>".encode()
            self._respond(status, [("Content-Type", "application/xml")], body)
        elif fault is Fault.RESET:
            self._reset()
        else:
            status, headers, body = self._fetch()
            if status >= 300:
                self._respond(status, headers, body)
            else:
                self._deliver(status, headers, body, fault, int(place * len(body)))

    def _fetch(self) -> tuple[int, Headers, bytes]:
        """Pass the request on; return the response."""
        self._upstream.putrequest(
            "GET", self.path, skip_host=True, skip_accept_encoding=True
        )
        for name, text in self.headers.items():
            self._upstream.putheader(name, text)
        self._upstream.endheaders()
        response = self._upstream.getresponse()
        body = response.read()
        return response.status, response.getheaders(), body

    def _deliver(
        self, status: int, headers: Headers, body: bytes, fault: Fault | None, at: int
    ) -> None:
        """Send a successful response, with a fault at an offset of its body."""
        if fault is Fault.WRONG_ETAG:
            headers = [
                (name, '"0123456789abcdef"' if name.lower() == "etag" else text)
                for name, text in headers
            ]
        elif fault is Fault.WRONG_BYTES and body:
            body = body[:at] + bytes([body[at] ^ 0x55]) + body[at + 1 :]
        self._begin(status, headers, len(body))
        if fault in {Fault.RESET_WITHIN, Fault.STALL, Fault.SHORT}:
            self._send(body[:at])
            if fault is Fault.STALL:
                select.select([self.connection], [], [], _STALL_S)
            elif fault is Fault.RESET_WITHIN:
                self._reset()
            self.close_connection = True
            return
        size = _PIECE_BYTES
        if fault is Fault.SLOW:
            size = max(1, len(body) // _SLOW_PIECES)
        for begin in range(0, len(body), size):
            self._send(body[begin : begin + size])
            if fault is Fault.SLOW:
                time.sleep(_SLOW_S / _SLOW_PIECES)

    def _respond(self, status: int, headers: Headers, body: bytes) -> None:
        self._begin(status, headers, len(body))
        self.wfile.write(body)

    def _begin(self, status: int, headers: Headers, size_bytes: int) -> None:
        self.send_response_only(status)
        for name, text in headers:
            if name.lower() not in {
                "content-length",
                "connection",
                "transfer-encoding",
            }:
                self.send_header(name, text)
        self.send_header("Content-Length", str(size_bytes))
        self.end_headers()

    def _send(self, piece: bytes) -> None:
        self.wfile.write(piece)
        self.server.proxy.sent(self.path, len(piece))

    def _reset(self) -> None:
        """End the connection so that the client finds it reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.connection.close()
        self.close_connection = True
