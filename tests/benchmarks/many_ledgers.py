"""A topic of many small ledgers, and a server with S3's protocol that has only these.

All ledgers have the same entries, so the server keeps one of each object and all names.
It is a loop over sockets in one thread, which takes some 25 us of a processor for a
small GET, the latency included: responses wait in a queue. The server of the other
benchmarks takes milliseconds.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, unquote

from sparkcache_pulsar.testing import Entry, Message, ledger_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "offload"
ROOT = f"s3://{BUCKET}"
TOPIC = "persistent://shop/eu/orders"
_PAGE_KEYS = 1000
_WRITTEN = "Thu, 01 Jan 2026 00:00:00 GMT"


class Shape(NamedTuple):
    """What is served: so many ledgers, each with some messages in single entries."""

    ledgers: int
    messages: int = 4
    value_bytes: int = 250


class LedgerServer:
    """The server, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = f"http://127.0.0.1:{self._line()}"

    def __repr__(self) -> str:
        return f"LedgerServer({self.endpoint})"

    def environment(self) -> dict[str, str]:
        """Return the variables with which boto3 uses this server."""
        return {
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def counts(self) -> dict[str, float]:
        """Return what was asked for since the last call, and what answering took.

        `pages` of listings, `indexes`, `data` objects, their `data_bytes`, and the
        seconds `cpu_s` of a processor.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        counted: dict[str, float] = json.loads(self._line())
        return counted

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def serving(shape: Shape, latency_s: float) -> Iterator[LedgerServer]:
    """Serve a topic; every response leaves so long after its request has come."""
    arguments = [*map(str, shape), str(latency_s)]
    with subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        try:
            yield LedgerServer(process)
        finally:
            process.kill()


class _Objects:
    """The objects of a topic: their names in order, and one of each kind."""

    def __init__(self, shape: Shape) -> None:
        value = b"v" * shape.value_bytes
        entries = [Entry((Message(value),)).encode() for _ in range(shape.messages)]
        self._data = self._index = b""
        keys: list[str] = []
        for ledger in range(1, shape.ledgers + 1):
            data, index = ledger_objects(TOPIC, ledger, entries)
            self._data, self._index = data.data, index.data
            keys += data.key, index.key
        self._metadata = "".join(
            f"x-amz-meta-{name}: {text}\r\n" for name, text in data.metadata.items()
        )
        self._keys = sorted(keys)
        self._entries = [self._entry(key) for key in self._keys]
        self._known = frozenset(keys)

    def get(self, key: str, wanted: str) -> bytes:
        """Return the response to a GET of an object, or of a range."""
        if key not in self._known:
            return _response("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>")
        data, status, ranged = self._of(key), "200 OK", ""
        if wanted:
            begin, _, end = wanted.partition("-")
            first = int(begin) if begin else len(data) - int(end)
            last = int(end) if begin and end else len(data) - 1
            ranged = f"Content-Range: bytes {first}-{last}/{len(data)}\r\n"
            data, status = data[first : last + 1], "206 Partial Content"
        about = f'ETag: "{_etag(key)}"\r\nLast-Modified: {_WRITTEN}\r\n'
        return _response(status, data, about + ranged + self._metadata)

    def page(self, query: str) -> bytes:
        """Return the response to a listing."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        prefix = asked.get("prefix", "")
        after = asked.get("continuation-token", asked.get("start-after", ""))
        begin = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        stop = bisect_left(self._keys, prefix + "\uffff")
        end = min(begin + int(asked.get("max-keys", _PAGE_KEYS)), stop)
        rest = ""
        if end < stop:
            token = self._keys[end - 1]
            rest = f"<NextContinuationToken>{token}</NextContinuationToken>"
        page = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>"
            f"<MaxKeys>{_PAGE_KEYS}</MaxKeys><KeyCount>{end - begin}</KeyCount>"
            f"<IsTruncated>{'true' if rest else 'false'}</IsTruncated>{rest}"
            f"{''.join(self._entries[begin:end])}</ListBucketResult>"
        )
        return _response("200 OK", page.encode(), "Content-Type: application/xml\r\n")

    def _of(self, key: str) -> bytes:
        return self._index if key.endswith("-index") else self._data

    def _entry(self, key: str) -> str:
        return (
            f"<Contents><Key>{key}</Key>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{_etag(key)}&quot;</ETag><Size>{len(self._of(key))}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )


class _Server:
    def __init__(self, objects: _Objects, latency_s: float) -> None:
        self._objects = objects
        self._latency_s = latency_s
        self._counts: Counter[str] = Counter()
        self._connections: dict[int, tuple[socket.socket, bytearray]] = {}
        self._waiting: deque[tuple[float, socket.socket, bytes]] = deque()
        self._cpu_s = time.process_time()

    def run(self) -> None:
        """Serve until the process is killed."""
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        print(listening.getsockname()[1], flush=True)
        events = select.epoll()
        events.register(listening, select.EPOLLIN)
        events.register(sys.stdin, select.EPOLLIN)
        while True:
            for descriptor, _ in events.poll(self._pause_s()):
                if descriptor == listening.fileno():
                    connection, _ = listening.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
                    events.register(connection, select.EPOLLIN)
                    self._connections[connection.fileno()] = connection, bytearray()
                elif descriptor == sys.stdin.fileno():
                    sys.stdin.readline()
                    self._tell()
                else:
                    self._receive(descriptor)
            self._send_due()

    def _pause_s(self) -> float:
        """Return how long until the next response leaves; -1 if none waits."""
        if not self._waiting:
            return -1
        return max(0.0, self._waiting[0][0] - time.monotonic())

    def _receive(self, descriptor: int) -> None:
        connection, received = self._connections[descriptor]
        try:
            data = connection.recv(64 << 10)
        except ConnectionError:
            data = b""
        if not data:
            connection.close()
            del self._connections[descriptor]
            return
        received += data
        while (end := received.find(b"\r\n\r\n")) >= 0:
            head = received[:end].decode()
            del received[: end + 4]
            due_s = time.monotonic() + self._latency_s
            self._waiting.append((due_s, connection, self._answer(head)))

    def _send_due(self) -> None:
        now_s = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now_s:
            _, connection, response = self._waiting.popleft()
            try:
                connection.sendall(response)
            except OSError:  # the client has closed it
                continue

    def _answer(self, head: str) -> bytes:
        target = head[4 : head.index(" ", 4)]
        path, _, query = target.partition("?")
        key = path.removeprefix(f"/{BUCKET}").lstrip("/")
        if not key:
            self._counts["pages"] += 1
            return self._objects.page(query)
        wanted = ""
        place = head.lower().find("\r\nrange: bytes=")
        if place >= 0:
            wanted = head[place + 15 :].partition("\r\n")[0]
        response = self._objects.get(unquote(key), wanted)
        if key.endswith("-index"):
            self._counts["indexes"] += 1
        else:
            self._counts["data"] += 1
            self._counts["data_bytes"] += (
                len(response) - response.index(b"\r\n\r\n") - 4
            )
        return response

    def _tell(self) -> None:
        cpu_s = time.process_time()
        counts = {name: self._counts[name] for name in ("pages", "indexes", "data")}
        counts["data_bytes"] = self._counts["data_bytes"]
        print(json.dumps(counts | {"cpu_s": cpu_s - self._cpu_s}), flush=True)
        self._cpu_s = cpu_s
        self._counts.clear()


def _etag(key: str) -> str:
    return f"{zlib.crc32(key.encode()):032x}"


def _response(status: str, body: bytes, fields: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
    return head.encode() + body


if __name__ == "__main__":
    *numbers, latency = sys.argv[1:]
    _Server(_Objects(Shape(*map(int, numbers))), float(latency)).run()
