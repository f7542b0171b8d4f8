"""The smallest connector: folders of text files as topics, a row for each line.

    orders/1.txt     a file is a ledger; the number in its name is the ledger's id
    orders/2.txt     a line is an entry; the offset of its first byte is the entry's id

So the names and sizes of files are all that planning needs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.connector import (
    Catalog,
    Connector,
    DecodedRun,
    LedgerMap,
    RawRun,
    Snapshot,
)
from sparkcache.errors import ConfigError, NoSuchTopicError
from sparkcache.model import Extent, Ledger, Loss, Run, qualified_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.connector import ByteStream, Selection, Storage
    from sparkcache.model import ObjectId

SCHEMA = pa.schema(
    [("file", pa.int64()), ("offset", pa.int64()), ("line", pa.string())]
)
ENCODINGS = ("utf-8", "latin-1")

_FILE = re.compile(r"(.+)/(0|[1-9][0-9]{0,17})\.txt")
_READ_BYTES = 1 << 20


class LinesConnector(Connector):
    """Folders of text files as topics."""

    name = "lines"
    option_names = frozenset({"encoding"})

    def decoding(self, options: Mapping[str, str]) -> str:
        """Return the encoding of the files."""
        encoding = options.get("encoding", ENCODINGS[0])
        if encoding not in ENCODINGS:
            raise ConfigError(
                f"option encoding={encoding!r}: must be {' or '.join(ENCODINGS)}"
            )
        return encoding

    def schema(self, decoding: str) -> pa.Schema:
        """Return the columns, the same for every encoding."""
        return SCHEMA

    def entry_columns(self) -> tuple[str, str]:
        """Return the columns of the ledger's id and the entry's id."""
        return "file", "offset"

    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        """List the files below the root."""
        return Folders(storage, self.decoding(options))

    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        """Cut a file every `run_bytes`: a run is the lines that begin there."""
        return [
            Run(first, min(first + run_bytes - 1, extent.last))
            for first in range(extent.first, extent.last + 1, run_bytes)
        ]

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        """Yield the lines of each run as soon as they have arrived."""
        start, data = stream.position, b""
        for run in runs:
            end = 0
            if start <= run.last:  # else a line of an earlier run goes on beyond it
                data, end = _through_line(data, run.last - start, stream)
            yield RawRun(run, start, data[:end])
            start, data = start + end, data[end:]

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        """Decode lines; those that are not in the encoding are losses."""
        offsets, lines, losses = [], [], []
        offset = raw.offset
        stored = bytes(raw.data).removesuffix(b"\n").split(b"\n") if raw.data else []
        for line in stored:
            try:
                lines.append(line.decode(ledger.decoding))
                offsets.append(offset)
            except UnicodeDecodeError as error:
                place = ledger.object.uri, offset, ledger.id, offset, offset
                losses.append(Loss(*place, f"{ledger.decoding} text", str(error)))
            offset += len(line) + 1
        columns = [[ledger.id] * len(lines), offsets, lines]
        batch = pa.RecordBatch.from_pydict(
            dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA
        )
        rows = max(1, len(batch) * batch_bytes // max(1, batch.nbytes))
        batches = [batch.slice(row, rows) for row in range(0, len(batch), rows)]
        return DecodedRun(batches, tuple(losses))


class Folders(Catalog):
    """The folders of text files below a root."""

    def __init__(self, storage: Storage, encoding: str) -> None:
        self._root = storage.root
        self._encoding = encoding
        self._files: dict[str, dict[int, ObjectId]] = defaultdict(dict)
        for object_id in storage.list():
            name = object_id.uri.removeprefix(f"{storage.root}/")
            if match := _FILE.fullmatch(name):
                self._files[match[1]][int(match[2])] = object_id

    def select(self, selection: Selection) -> Sequence[str]:
        """Return the folders that are selected."""
        topics: Sequence[str] = selection.names
        if selection.pattern is not None:
            topics = list(filter(selection.pattern.fullmatch, sorted(self._files)))
        if not topics or not set(topics) <= self._files.keys():
            raise NoSuchTopicError(
                f"option {selection}: no folder of text files; {self._root} has "
                f"{', '.join(sorted(self._files)) or 'none'}"
            )
        return topics

    def snapshot(self, topic: str) -> Snapshot:
        """Return the files of a folder; each is read in one request."""
        ledgers = []
        for number, file in sorted(self._files[topic].items()):
            name, size_bytes = qualified_topic(topic, self._root), file.size_bytes
            ledger = Ledger(LinesConnector.name, name, number, file, self._encoding)
            whole = Extent(0, size_bytes - 1, 0, size_bytes)
            ledgers.append(LedgerMap(ledger, (whole,) if size_bytes else ()))
        return Snapshot(tuple(ledgers))


def _through_line(data: bytes, index: int, stream: ByteStream) -> tuple[bytes, int]:
    """Read up to the end of the line that has the byte at an index; return that end."""
    while (newline := data.find(b"\n", index)) < 0:
        chunk = stream.read(_READ_BYTES)
        if not chunk:
            return data, len(data)
        data += chunk
    return data, newline + 1
