"""WSGI application around that of an S3 server, which counts and injects faults.

Bytes are counted block by block when they are passed to the network. So a body that the
client stops reading counts up to there, to within a block.
"""

from __future__ import annotations

import re
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from sparkcache.testing.s3_messages import Behaviour, Fault, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_BLOCK_BYTES = 64 << 10
_REGION = re.compile(r"Credential=[^/]+/\d+/([^/]+)/")


class WatchedApp:
    """Wraps an S3 application. Thread-safe.

    Attributes:
        behaviour: How it responds to requests without a fault.

    """

    def __init__(
        self, app: WSGIApplication, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.behaviour = Behaviour()
        self._app = app
        self._sleep = sleep
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._faults: list[tuple[Fault, int | None]] = []

    def __repr__(self) -> str:
        return f"WatchedApp({len(self._requests)} requests, {self._faults})"

    def requests(self) -> list[Request]:
        """Return the requests so far; the counts of unfinished ones still grow."""
        with self._lock:
            return list(self._requests)

    def forget(self) -> None:
        """Forget all requests so far."""
        with self._lock:
            self._requests.clear()

    def inject(self, fault: Fault) -> None:
        """Add a fault, which applies after those added before."""
        with self._lock:
            self._faults.append((fault, fault.times))

    def heal(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def __call__(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Respond to a request, with a fault if one applies."""
        request = _request(environ)
        with self._lock:
            self._requests.append(request)
            fault = self._next_fault(request.key)
        if self.behaviour.latency_s:
            self._sleep(self.behaviour.latency_s)
        if fault.status is not None:
            return _refuse(request, fault.status, fault, start_response)
        for header in fault.without:
            environ.pop("HTTP_" + header.upper().replace("-", "_"), None)
        if not request.key:
            _limit_page(environ, self.behaviour.page_keys)

        def start(
            status: str, headers: list[tuple[str, str]], *rest: Any
        ) -> Callable[[bytes], object]:
            request.status = int(status.split()[0])
            hidden = {name.lower() for name in fault.hidden}
            headers = [pair for pair in headers if pair[0].lower() not in hidden]
            return start_response(status, headers, *rest)

        return _counted(self._app(environ, start), request, fault.after_bytes)

    def _next_fault(self, key: str) -> Fault:
        """Return the fault that applies to a request; one without effect if none."""
        for index, (fault, times) in enumerate(self._faults):
            if re.search(fault.key, key) is None:
                continue
            if times == 1:
                del self._faults[index]
            elif times is not None:
                self._faults[index] = fault, times - 1
            return fault
        return Fault()


def _request(environ: WSGIEnvironment) -> Request:
    path = environ["PATH_INFO"].encode("latin-1").decode()
    bucket, _, key = path.removeprefix("/").partition("/")
    signed = _REGION.search(environ.get("HTTP_AUTHORIZATION", ""))
    return Request(
        environ["REQUEST_METHOD"],
        bucket,
        key,
        range=environ.get("HTTP_RANGE", ""),
        region=signed[1] if signed else "",
        payer=environ.get("HTTP_X_AMZ_REQUEST_PAYER", ""),
    )


def _refuse(
    request: Request, status: int, fault: Fault, start_response: StartResponse
) -> Iterable[bytes]:
    request.status = status
    phrase = HTTPStatus(status).phrase
    message = fault.message or phrase
    error = f"<Code>{fault.code}</Code><Message>{message}</Message>"
    body = f"<Error>{error}</Error>".encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start_response(f"{status} {phrase}", headers)
    return [] if request.method == "HEAD" else [body]


def _limit_page(environ: WSGIEnvironment, keys: int) -> None:
    """Limit the number of keys that a listing requests, as a server may."""
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if "list-type" in query:
        query["max-keys"] = str(min(int(query.get("max-keys", keys)), keys))
        environ["QUERY_STRING"] = urlencode(query)


def _counted(
    body: Iterable[bytes], request: Request, after_bytes: int | None
) -> Iterator[bytes]:
    """Yield a body in blocks, counting each first; stop after `after_bytes`."""
    try:
        for part in body:
            for offset in range(0, len(part), _BLOCK_BYTES):
                block = part[offset : offset + _BLOCK_BYTES]
                if after_bytes is not None:
                    block = block[: after_bytes - request.sent_bytes]
                request.sent_bytes += len(block)
                if block:
                    yield block
                if request.sent_bytes == after_bytes:
                    return
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()
