"""Encoding of a decoded run as an Arrow IPC stream, and decoding."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.errors import CacheUnavailable
from sparkcache.model import Loss

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOSSES = b"sparkcache.losses"
_HEADER = struct.Struct("<Ii")  # of a message: a marker, and the length of its metadata
_MARKER = 0xFFFFFFFF
_END = _HEADER.pack(_MARKER, 0)


class EncodedRun:
    """A decoded run whose exact size in shared memory is known before it is written.

    Attributes:
        size_bytes: Length of the stream.

    """

    def __init__(self, decoded: DecodedRun, schema: pa.Schema) -> None:
        self._batches = decoded.batches
        self._schema = schema
        if decoded.losses:
            losses = msgspec.json.encode(decoded.losses)
            self._schema = schema.with_metadata({_LOSSES: losses})
        counter = pa.MockOutputStream()
        self.write(counter)
        self.size_bytes: int = counter.size()

    def write(self, sink: pa.NativeFile | BinaryIO) -> None:
        """Write the stream."""
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)


class EncodedSmallRun:
    """As an `EncodedRun`, but encoded only once: a small run takes the memory."""

    def __init__(self, decoded: DecodedRun, schema: pa.Schema) -> None:
        if decoded.losses:
            losses = msgspec.json.encode(decoded.losses)
            schema = schema.with_metadata({_LOSSES: losses})
        batches = (batch.serialize() for batch in decoded.batches)
        self._parts = [schema.serialize(), *batches, _END]
        self.size_bytes: int = sum(map(len, self._parts))

    def write(self, sink: pa.NativeFile | BinaryIO) -> None:
        """Write the stream."""
        for part in self._parts:
            sink.write(part)


def decode(stream: pa.Buffer) -> DecodedRun:
    """Read a run; its batches point into the buffer, which may extend past it.

    Raises an error that `unavailable_on_error` names unless the run is whole.
    """
    marker, size = _HEADER.unpack_from(stream)
    header_bytes = _HEADER.size + size
    if marker != _MARKER or not 0 < size <= len(stream) - _HEADER.size:
        raise ValueError("expected an Arrow IPC stream, found other bytes")
    # Cached: most runs have the same schema, and parsing it costs more than the rest.
    schema = _schema(stream.slice(0, header_bytes).to_pybytes())
    messages = pa.BufferReader(stream.slice(header_bytes))
    batches = []
    while (message := _next_message(messages)) is not None:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate()  # or an invalid one could be read past its end
        batches.append(batch)
    return _decoded_run(batches, schema)


def read(stream: BinaryIO) -> DecodedRun:
    """Read a run from a file into private memory of this process."""
    reader = pa.ipc.open_stream(stream)
    return _decoded_run(list(reader), reader.schema)


@contextmanager
def unavailable_on_error(subject: str) -> Iterator[None]:
    """Turn every error that an invalid run can cause into CacheUnavailable."""
    try:
        yield
    except (
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        MemoryError,
        struct.error,
        pa.ArrowException,
        msgspec.MsgspecError,
    ) as error:
        raise CacheUnavailable(f"{subject}: {error}") from error


@lru_cache(maxsize=64)
def _schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))


def _next_message(messages: pa.NativeFile) -> pa.Message | None:
    begin = messages.tell()
    try:
        return pa.ipc.read_message(messages)
    except EOFError:
        # Arrow takes the end of the bytes for the end of the run.
        if messages.tell() - begin != _HEADER.size:
            raise EOFError("the run has no end marker") from None
        return None


def _decoded_run(batches: list[pa.RecordBatch], schema: pa.Schema) -> DecodedRun:
    losses = (schema.metadata or {}).get(_LOSSES, b"[]")
    return DecodedRun(batches, msgspec.json.decode(losses, type=tuple[Loss, ...]))
