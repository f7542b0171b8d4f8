"""A Delta table of many files, and a server with S3's protocol that has only its names.

What planning asks for is served: the objects of the log, pages of listings, and the end
of any data file. Data files have a length and a footer, and nothing before it. The
server of the other benchmarks keeps each object, and sorts all names for each page.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "lake"
TABLE = "orders"
ROWS = 1000
FILE_BYTES = 4 << 20
DAYS = 365
_ADDS_OF_COMMIT = 100
_PARTS = 10  # of a checkpoint
_COLUMNS = 10
_FIRST_MS = 1_700_000_000_000
_PAGE_KEYS = 1000
_LOG = "_delta_log"


def write_log(directory: Path, files: int, *, checkpoint: bool) -> None:
    """Write the log of a table: commits of 100 files each, or a checkpoint of them."""
    log = directory / TABLE / _LOG
    log.mkdir(parents=True)
    versions = files // _ADDS_OF_COMMIT
    for version in range(versions):
        actions = [] if version else _beginning()
        first = version * _ADDS_OF_COMMIT
        actions += [_added(number) for number in range(first, first + _ADDS_OF_COMMIT)]
        lines = "\n".join(map(json.dumps, actions))
        (log / f"{version:020}.json").write_text(lines)
    if checkpoint:
        _write_checkpoint(directory / TABLE, versions - 1)


def file_name(number: int) -> str:
    """Return the name of a data file, with its partition folder."""
    unique = zlib.crc32(str(number).encode())
    return f"day={_day(number)}/part-{number:06}-{unique:08x}-c000.snappy.parquet"


def _day(number: int) -> str:
    day = number * 7 % DAYS
    return f"20{day // 336 + 25}-{day % 336 // 28 + 1:02}-{day % 28 + 1:02}"


def _beginning() -> list[dict[str, Any]]:
    columns = [("day", "date"), ("at", "timestamp")]
    columns += [
        (f"c{column}", "string" if column % 2 else "long") for column in range(_COLUMNS)
    ]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns
    ]
    metadata = {
        "id": "f1e61c26-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day"],
        "configuration": {},
        "createdTime": _FIRST_MS,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    return [{"protocol": protocol}, {"metaData": metadata}]


def _added(number: int) -> dict[str, Any]:
    names = [f"c{column}" for column in range(_COLUMNS)]
    lows: dict[str, Any] = {"at": "2025-01-01T00:00:00.000Z"}
    highs: dict[str, Any] = {"at": "2026-12-31T00:00:00.000Z"}
    for column, name in enumerate(names):
        lows[name] = f"v{number}" if column % 2 else number
        highs[name] = f"v{number}x" if column % 2 else number + ROWS
    statistics = {
        "numRecords": ROWS,
        "minValues": lows,
        "maxValues": highs,
        "nullCount": dict.fromkeys(["at", *names], 0),
    }
    return {
        "add": {
            "path": file_name(number),
            "partitionValues": {"day": _day(number)},
            "size": FILE_BYTES,
            "modificationTime": _FIRST_MS + number,
            "dataChange": True,
            "stats": json.dumps(statistics),
        }
    }


def _write_checkpoint(table: Path, version: int) -> None:
    """Replace the commits by a checkpoint in parts, and the last commit."""
    DeltaTable(table).create_checkpoint()
    log = table / _LOG
    (whole,) = log.glob("*.checkpoint.parquet")
    actions = pq.read_table(whole)
    rows = -(-actions.num_rows // _PARTS)
    for part in range(_PARTS):
        name = f"{version:020}.checkpoint.{part + 1:010}.{_PARTS:010}.parquet"
        pq.write_table(actions.slice(part * rows, rows), log / name)
    whole.unlink()
    last = {"version": version, "size": actions.num_rows, "parts": _PARTS}
    (log / "_last_checkpoint").write_text(json.dumps(last))
    for earlier in range(version):
        (log / f"{earlier:020}.json").unlink()


class TableServer:
    """The server, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = f"http://127.0.0.1:{self._line()}"

    def __repr__(self) -> str:
        return f"TableServer({self.endpoint})"

    def environment(self) -> dict[str, str]:
        """Return the variables with which boto3 uses this server."""
        return {
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def counts(self) -> dict[str, int]:
        """Return the requests since the last call: `log`, `footers` and `pages`."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        counted: dict[str, int] = json.loads(self._line())
        return counted

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def serving(directory: Path, files: int, latency_s: float) -> Iterator[TableServer]:
    """Serve a table whose log is in a directory, which is removed at the end."""
    arguments = [str(directory), str(files), str(latency_s)]
    with subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        try:
            yield TableServer(process)
        finally:
            process.kill()
    shutil.rmtree(directory / TABLE)


class _Server:
    def __init__(self, directory: Path, files: int, latency_s: float) -> None:
        self._latency_s = latency_s
        self._counts: Counter[str] = Counter()
        self._stored = {
            f"{TABLE}/{_LOG}/{path.name}": path.read_bytes()
            for path in (directory / TABLE / _LOG).iterdir()
        }
        self._sizes = {f"{TABLE}/{file_name(n)}": FILE_BYTES for n in range(files)}
        self._sizes |= {key: len(data) for key, data in self._stored.items()}
        self._keys = sorted(self._sizes)
        self._entries = [
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z"
            f"</LastModified><ETag>&quot;{_etag(key)}&quot;</ETag>"
            f"<Size>{self._sizes[key]}</Size><StorageClass>STANDARD</StorageClass>"
            "</Contents>"
            for key in self._keys
        ]
        self._end = _end_of_file()

    async def run(self) -> None:
        """Print the port; then the counts for each line of input, until it ends."""
        server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(self._counts), flush=True)
            self._counts.clear()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await asyncio.sleep(self._latency_s)
                request, *lines = head.splitlines()
                method, target, _ = request.split()
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                writer.write(self._answer(method, target, headers.get("range", "")))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, method: str, target: str, wanted: str) -> bytes:
        url = urlsplit(target)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        if not key:
            self._counts["pages"] += 1
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            return _response(HTTPStatus.OK, self._page(query))
        self._counts["log" if f"/{_LOG}/" in key else "footers"] += 1
        if key not in self._sizes:
            return _response(
                HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchKey</Code></Error>"
            )
        return self._object(method, key, wanted.removeprefix("bytes="))

    def _object(self, method: str, key: str, wanted: str) -> bytes:
        size_bytes = self._sizes[key]
        first, last = 0, size_bytes - 1
        if wanted:
            begin, _, end = wanted.partition("-")
            first = int(begin) if begin else max(0, size_bytes - int(end))
            last = min(int(end), last) if begin and end else last
        data = self._stored.get(key)
        if data is None:
            missing = size_bytes - len(self._end)
            data = (bytes(max(0, missing - first)) + self._end)[-(size_bytes - first) :]
        else:
            data = data[first : last + 1]
        headers = {
            "ETag": f'"{_etag(key)}"',
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
        }
        if wanted:
            headers["Content-Range"] = f"bytes {first}-{last}/{size_bytes}"
        status = HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK
        return _response(status, data, headers, is_head=method == "HEAD")

    def _page(self, query: dict[str, str]) -> bytes:
        prefix = query.get("prefix", "")
        after = query.get("continuation-token", query.get("start-after", ""))
        begin = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        stop = bisect_left(self._keys, prefix + "\uffff")
        end = min(begin + _PAGE_KEYS, stop)
        rest = ""
        if end < stop:
            token = self._keys[end - 1]
            rest = f"<NextContinuationToken>{token}</NextContinuationToken>"
        entries = "".join(self._entries[begin:end])
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>"
            f"<MaxKeys>{_PAGE_KEYS}</MaxKeys><KeyCount>{end - begin}</KeyCount>"
            f"<IsTruncated>{'true' if rest else 'false'}</IsTruncated>{rest}{entries}"
            "</ListBucketResult>"
        ).encode()


def _etag(key: str) -> str:
    return f"{zlib.crc32(key.encode()):032x}"


def _end_of_file() -> bytes:
    """Return a small Parquet file: the end of each data file."""
    columns: dict[str, Any] = {
        f"c{column}": [f"v{row}" for row in range(ROWS)] if column % 2 else range(ROWS)
        for column in range(_COLUMNS)
    }
    at = pa.array(range(ROWS), pa.timestamp("us", "UTC"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"at": at} | columns), sink)
    return sink.getvalue()


def _response(
    status: HTTPStatus,
    body: bytes,
    headers: dict[str, str] | None = None,
    *,
    is_head: bool = False,
) -> bytes:
    fields = {
        "Content-Length": str(len(body)),
        "Content-Type": "application/xml",
        **(headers or {}),
    }
    lines = "".join(f"{name}: {text}\r\n" for name, text in fields.items())
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n{lines}\r\n".encode()
    return head if is_head else head + body


if __name__ == "__main__":
    table_directory, file_count, latency = sys.argv[1:]
    serve = _Server(Path(table_directory), int(file_count), float(latency)).run
    asyncio.run(serve())
