"""Compact extent index of a topic, shipped to tasks that read surrounding runs.

It is a compressed Arrow stream: a row for each ledger, with the list of its extents.
Most extents begin where the previous one ends and have about the same length. So the
columns are gaps and lengths, from the minimum of each on, in the smallest integers that
hold them.
"""

from __future__ import annotations

from itertools import accumulate, groupby, islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from sparkcache.connector import LedgerMap
from sparkcache.model import Ledger, Loss, ObjectId
from sparkcache.source.batch.partitions import extent_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkcache.arrays import Ints
    from sparkcache.connector import Connector, Snapshot
    from sparkcache.model import Extent

_LEDGER = pa.schema(
    {
        "connector": pa.string(),
        "topic": pa.string(),
        "id": pa.int64(),
        "uri": pa.string(),
        "size_bytes": pa.int64(),
        "version": pa.string(),
        "decoding": pa.string(),
    }
)
_RANGES = pa.list_(pa.list_(pa.int64(), 2))
_MINIMUM = b"minimum"


class ExtentIndex:
    """The extents of a topic at the time of planning, and its losses.

    Every task carries the index and few use it, so it is unpacked on access.
    """

    def __init__(
        self, ledgers: Sequence[LedgerMap], losses: Sequence[Loss] = ()
    ) -> None:
        extents = [extent for ledger_map in ledgers for extent in ledger_map.extents]
        self._kinds = tuple(dict.fromkeys(map(type, extents)))
        self._packed = b""
        if ledgers:
            ends = accumulate((len(one.extents) for one in ledgers), initial=0)
            lists = pa.ListArray.from_arrays(
                pa.array(ends, pa.int32()), _extent_columns(extents, self._kinds)
            )
            batch = _ledger_columns(ledgers).append_column("extents", lists)
            self._packed = _compressed(batch)
        self._losses = msgspec.msgpack.encode(losses) if losses else b""

    @classmethod
    def for_tasks(cls, connector: Connector, snapshot: Snapshot) -> ExtentIndex:
        """Return the index for tasks; empty if their resolvers read no other runs."""
        if not connector.needs_surrounding_runs:
            return cls(())
        return cls(snapshot.ledgers, snapshot.losses)

    def __repr__(self) -> str:
        return f"ExtentIndex({len(self._packed) + len(self._losses)} bytes)"

    def extents(self) -> list[tuple[Ledger, Extent, int]]:
        """Return all extents in order, with the stored bytes before each."""
        return list(extent_offsets(self._ledgers()))

    def losses(self) -> Sequence[Loss]:
        """Return the losses of the topic's snapshot."""
        if not self._losses:
            return ()
        return msgspec.msgpack.decode(self._losses, type=tuple[Loss, ...])

    def _ledgers(self) -> Iterator[LedgerMap]:
        if not self._packed:
            return
        batch = _decompressed(self._packed)
        extents = _extents(batch["extents"].values, self._kinds)
        counts = batch["extents"].value_lengths().to_pylist()
        rows = batch.select(_LEDGER.names).to_pylist()
        for row, count in zip(rows, counts, strict=True):
            object_ = ObjectId(row["uri"], row["size_bytes"], row["version"])
            ledger = Ledger(
                row["connector"], row["topic"], row["id"], object_, row["decoding"]
            )
            yield LedgerMap(ledger, tuple(islice(extents, count)))


def _ledger_columns(ledgers: Iterable[LedgerMap]) -> pa.RecordBatch:
    of_maps = [ledger_map.ledger for ledger_map in ledgers]
    objects = [ledger.object for ledger in of_maps]
    columns = [
        [getattr(each, field.name) for each in of]
        for field in _LEDGER
        for of in [objects if field.name in ObjectId.__slots__ else of_maps]
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, field.type)
            for column, field in zip(columns, _LEDGER, strict=True)
        ],
        schema=_LEDGER,
    )


def _extent_columns(
    extents: Sequence[Extent], kinds: Sequence[type[Extent]]
) -> pa.StructArray:
    numbers = {kind: number for number, kind in enumerate(kinds)}
    kind = np.fromiter(map(numbers.__getitem__, map(type, extents)), np.int64)
    first, last, offset, size_bytes = (
        np.fromiter(map(attrgetter(name), extents), np.int64)
        for name in ("first", "last", "offset", "size_bytes")
    )
    gap, length = _steps(first, last)
    gap_bytes, _ = _steps(offset, offset + size_bytes)
    columns = [
        _narrow("kind", kind),
        _narrow("gap", gap),
        _narrow("length", length),
        _narrow("gap_bytes", gap_bytes),
        _narrow("size_bytes", size_bytes),
        (
            pa.field("ranges", _RANGES),
            _ranges(extents),
        ),
    ]
    fields, arrays = zip(*columns, strict=True)
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _ranges(extents: Sequence[Extent]) -> pa.Array:
    if any(extent.ranges for extent in extents):
        return pa.array([extent.ranges for extent in extents], _RANGES)
    return pa.array([[]], _RANGES).take(pa.array(np.zeros(len(extents), np.int64)))


def _extents(
    columns: pa.StructArray, kinds: Sequence[type[Extent]]
) -> Iterator[Extent]:
    kind, gap, length, gap_bytes, size_bytes = (
        _widened(columns, name)
        for name in ("kind", "gap", "length", "gap_bytes", "size_bytes")
    )
    first, last = _places(gap, length)
    offset, _ = _places(gap_bytes, size_bytes)
    ranges: Iterator[tuple[tuple[int, int], ...]] = repeat(())
    if len(columns.field("ranges").flatten()):
        lists = columns.field("ranges").to_pylist()
        ranges = (tuple((start, size) for start, size in pairs) for pairs in lists)
    places = [iter(ints.tolist()) for ints in (first, last, offset, size_bytes)]
    for number, same in groupby(kind.tolist()):
        count = sum(1 for _ in same)
        fields = (islice(column, count) for column in (*places, ranges))
        yield from map(kinds[number], *fields)


def _steps(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the gap before each place, and its length."""
    gap, length = (
        np.diff(np.column_stack((begin, end)).ravel(), prepend=np.int64(0))
        .reshape(-1, 2)
        .T
    )
    return gap, length


def _places(gap: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Return where each place begins and ends."""
    begin, end = np.cumsum(np.column_stack((gap, length)).ravel()).reshape(-1, 2).T
    return begin, end


def _narrow(name: str, ints: Ints) -> tuple[pa.Field, pa.Array]:
    """Return a column of the differences to the minimum, which its field has."""
    minimum = ints.min() if len(ints) else np.int64(0)
    above = (ints - minimum).view(np.uint64)  # they wrap around if they are very large
    array = pa.array(above.astype(np.min_scalar_type(above.max(initial=0))))
    return pa.field(name, array.type, metadata={_MINIMUM: str(minimum)}), array


def _widened(columns: pa.StructArray, name: str) -> Ints:
    minimum = int(columns.type.field(name).metadata[_MINIMUM])
    above: Ints = columns.field(name).to_numpy().astype(np.int64)
    return above + np.int64(minimum)


def _compressed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with (
        pa.CompressedOutputStream(sink, "zstd") as stream,
        pa.ipc.new_stream(stream, batch.schema) as writer,
    ):
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _decompressed(packed: bytes) -> pa.RecordBatch:
    stream = pa.input_stream(pa.py_buffer(packed), compression="zstd")
    return pa.ipc.open_stream(stream).read_next_batch()
