"""Small loads, fetched at once and decoded together.

What a load costs besides its bytes is then spent once for many of them. A load that is
not sound is loaded again by itself, as if it had been alone: its faults are its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparkcache import connector as connectors
from sparkcache.connector import ByteRange
from sparkcache.errors import SourceError
from sparkcache.fetch.checked_load import CheckedLoad
from sparkcache.fetch.load import Load, begin, fetch
from sparkcache.fetch.run_statistics import run_statistics, statistics_of_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sparkcache.connector import Connector, DecodedRun, RawRun, Storage
    from sparkcache.filters import RunStatistics


class LoadedRun(NamedTuple):
    """The only run of a small load.

    Attributes:
        decoded: The run.
        schema: Its schema, since it may have no batches.
        offset: Where it begins in its object.
        statistics: Statistics of its rows, if they are those of scans.

    """

    decoded: DecodedRun
    schema: pa.Schema
    offset: int
    statistics: RunStatistics | None


class BytesStream:
    """Bytes that have been fetched, as a stream; see `ByteStream`."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._begin = position
        self.position = position

    def __repr__(self) -> str:
        return f"BytesStream({len(self._data)} bytes, at {self.position})"

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, at most `size_bytes`; empty only at the end."""
        begin = self.position - self._begin
        data = self._data[begin : begin + size_bytes]
        self.position += len(data)
        return data

    def close(self) -> None:
        """Drop nothing: there is no connection."""


def fetch_all(storage: Storage, loads: Sequence[Load]) -> list[bytes | SourceError]:
    """Read the bytes of small loads, many at once."""
    ranges = [
        ByteRange(load.ledger.object, load.offset, load.end - load.offset)
        for load in loads
    ]
    return list(storage.read_many(ranges))


def load_all(
    storage: Storage,
    loads: Sequence[Load],
    fetched: Sequence[bytes | SourceError],
    batch_bytes: int,
) -> Iterator[LoadedRun | SourceError]:
    """Yield the run of each small load, or why there is none, in order.

    The loads are of one topic, with one `Ledger.decoding`.
    """
    connector = connectors.find(loads[0].ledger.connector)
    raws = [
        _split(connector, load, data) for load, data in zip(loads, fetched, strict=True)
    ]
    sound = {
        index: (loads[index].ledger, raw)
        for index, raw in enumerate(raws)
        if not isinstance(raw, SourceError)
    }
    runs = connector.decode_all(list(sound.values()), batch_bytes)
    statistics = statistics_of_all(connector, loads[0].ledger.decoding, runs)
    decoded = dict(zip(sound, zip(runs, statistics, strict=True), strict=True))
    for index, (load, raw) in enumerate(zip(loads, raws, strict=True)):
        if isinstance(raw, SourceError):
            yield raw
            continue
        run, known = decoded[index]
        if run.losses:
            yield _alone(storage, connector, load, batch_bytes)
        else:
            yield LoadedRun(run, _schema(connector, load, run), raw.offset, known)


def _split(
    connector: Connector, load: Load, data: bytes | SourceError
) -> RawRun | SourceError:
    if isinstance(data, SourceError):
        return data
    try:
        return next(fetch(connector, load, BytesStream(data, load.offset)))
    except SourceError as error:
        return error


def _alone(
    storage: Storage, connector: Connector, load: Load, batch_bytes: int
) -> LoadedRun | SourceError:
    """Load a run whose losses are not believed yet."""
    try:
        checked = CheckedLoad(connector, load, partial(begin, storage), batch_bytes)
        raw = next(checked)
        run = checked.decode(raw)
        checked.close()
    except SourceError as error:
        return error
    known = run_statistics(connector, load.ledger.decoding, run)
    return LoadedRun(run, _schema(connector, load, run), raw.offset, known)


def _schema(connector: Connector, load: Load, run: DecodedRun) -> pa.Schema:
    if run.batches:
        return run.batches[0].schema
    return connector.schema(load.ledger.decoding)
