"""Decode many Avro data of one type at once, to columns.

Every datum is a lane: the position up to which it has been read, and an end. All lanes
read the same field at the same time, with a few numpy calls; a lane whose union is null
skips the field. Items of arrays and maps are read in turns: the first item of every
lane that has one, then the second, and so on. The longest arrays leave few lanes per
turn, which is slow. After too many such turns these lanes are given up, to be read by
another decoder.

The input is not trusted: a lane that does not parse fails and is not read further.

Source: the binary encoding in the specification of Apache Avro 1.12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache import arrays
from sparkcache.arrays import Ranges, words
from sparkcache_pulsar.protobuf import SLACK_BYTES, read_varints
from sparkcache_pulsar.schemas.avro_shapes import shape
from sparkcache_pulsar.schemas.definitions import (
    Array,
    Decimal,
    Definition,
    Enum,
    Fixed,
    Leaf,
    Map,
    Nullable,
    Record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.arrays import Bools, Bytes, Ints

FEW = 200
"""With fewer lanes, reading their items one by one is cheaper, or hardly dearer.

Measured: costs are equal at 100 lanes for structs of two fields, at 500 for integers.
"""

FEW_TURNS = 64
"""Number of turns with fewer lanes than FEW before these lanes are given up.

A turn takes 0.1 ms. All of these turns together cost as much as reading ten of the
lanes again, one by one.
"""

_FLOATS = {"float": ("<f4", pa.float32()), "double": ("<f8", pa.float64())}
_INT32 = np.iinfo(np.int32)


class Lanes:
    """Data of one type, one lane each.

    Attributes:
        failed: The fault of each row that failed.
        given_up: Rows that must be read one by one instead.

    """

    def __init__(self, buffer: Bytes, start: Ints, end: Ints, row: Ints) -> None:
        self._buffer = buffer
        self._position = start
        self._end = end
        self._row = row
        self._live: Bools = np.ones(len(start), np.bool_)
        self._few_turns = iter(range(FEW_TURNS))
        self.failed: dict[int, str] = {}
        self.given_up: set[int] = set()

    @classmethod
    def from_payloads(cls, payloads: pa.Array) -> Lanes:
        """Return a lane for each payload."""
        _, offsets, data = payloads.buffers()
        size = data.size if data is not None else 0
        buffer = np.zeros(size + SLACK_BYTES, np.uint8)
        if size:
            buffer[:size] = np.frombuffer(data, np.uint8)
        bounds = np.frombuffer(offsets, np.int32, len(payloads) + 1).astype(np.int64)
        return cls(buffer, bounds[:-1].copy(), bounds[1:], np.arange(len(payloads)))

    def __repr__(self) -> str:
        return f"Lanes({int(self._live.sum())} of {len(self._position)} live)"

    def read_all(self, definition: Definition, active: Bools) -> pa.Array:
        """Return the column of the active lanes' values; fail lanes with bytes left.

        It has the stored type of the definition's shape, and arbitrary values for lanes
        that failed or were given up.
        """
        column = self._read(definition, active)
        rest = self._end - self._position
        self._fail(
            active & (rest > 0), lambda lane: f"{rest[lane]} bytes after the value"
        )
        return column

    def _read(self, definition: Definition, active: Bools) -> pa.Array:
        match definition:
            case Record(fields=fields):
                columns = [self._read(field, active) for _, field in fields]
                return _nested(definition, active, columns, [])
            case Nullable(inner=inner, null_first=null_first):
                branch = self._varints(active)
                wrong = active & (branch != 0) & (branch != 1)
                self._fail(wrong, lambda lane: f"branch {branch[lane]} of a union of 2")
                return self._read(inner, active & (branch == int(null_first)))
            case Array(items=items):
                return self._repeated(definition, Record((("", items),)), active)
            case Map(values=values):
                pair = Record((("key", Leaf("string")), ("value", values)))
                return self._repeated(definition, pair, active)
            case Fixed(size=size) | Decimal(size=int(size)):
                sizes = np.full(len(self._position), size)
                return self._bytes(sizes, active)
            case Decimal() | Leaf(primitive="bytes"):
                return self._bytes(self._varints(active), active)
            case Leaf(primitive="string"):
                return self._strings(active)
            case Enum(symbols=symbols):
                index = self._varints(active)
                wrong = active & ((index < 0) | (index >= len(symbols)))
                self._fail(
                    wrong,
                    lambda lane: f"symbol {index[lane]} of an enum of {len(symbols)}",
                )
                return arrays.int32(index, active & self._live)
            case Leaf(primitive="boolean"):
                flags = self._buffer[self._position] != 0
                self._pass(1, active)
                return pa.array(flags, pa.bool_(), mask=~(active & self._live))
            case Leaf(primitive="float" | "double" as name):
                dtype, type_ = _FLOATS[name]
                floats = words(self._buffer, dtype)[self._position]
                self._pass(floats.itemsize, active)
                return arrays.fixed(type_, floats, active & self._live)
            case Leaf(primitive=name):
                numbers = self._varints(active)
                if name == "long":
                    return arrays.int64(numbers, active & self._live)
                wrong = active & ((numbers < _INT32.min) | (numbers > _INT32.max))
                self._fail(wrong, lambda lane: f"an int of {numbers[lane]}")
                return arrays.int32(numbers, active & self._live)

    def _varints(self, active: Bools) -> Ints:
        """Read zigzag varints."""
        coded, length = read_varints(self._buffer, self._position)
        self._fail(active & (length == 0), lambda _: "a number of more than 10 bytes")
        self._pass(length, active)
        half = (coded >> np.uint64(1)).view(np.int64)
        values: Ints = half ^ -(coded & np.uint64(1)).view(np.int64)
        return values

    def _bytes(self, sizes: Ints, active: Bools) -> pa.Array:
        start = self._position
        self._pass(sizes, active)
        return arrays.binary(self._buffer, Ranges(start, sizes, active & self._live))

    def _strings(self, active: Bools) -> pa.Array:
        stored = self._bytes(self._varints(active), active)
        try:
            return stored.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [
                None if value is None else _text(value) for value in stored.to_pylist()
            ]
        valid = np.array([text is not None for text in texts], np.bool_)
        self._fail(active & ~valid, lambda _: "text that is not UTF-8")
        return pa.array(texts, pa.string())

    def _repeated(
        self, definition: Array | Map, item: Record, active: Bools
    ) -> pa.Array:
        """Read the blocks of arrays or maps, and their items in turns."""
        lanes: list[Ints] = [np.zeros(0, np.int64)]
        items: list[pa.Array] = [pa.array([], shape(item).stored)]
        counts = self._block_counts(active)
        while len(rows := np.flatnonzero((counts > 0) & self._live)):
            if len(rows) < FEW and next(self._few_turns, None) is None:
                self.given_up.update(self._row[rows].tolist())
                self._live[rows] = False
                break
            lanes.append(rows)
            items.append(self._read_some(item, rows))
            counts[rows] -= 1
            ended = np.zeros(len(counts), np.bool_)
            ended[rows] = counts[rows] == 0
            if ended.any():
                counts = np.where(ended, self._block_counts(ended), counts)
        lane = np.concatenate(lanes)
        order = np.argsort(lane, kind="stable")
        lane, read = lane[order], pa.concat_arrays(items).take(pa.array(order))
        children = read.flatten()
        if isinstance(definition, Map):
            # Lanes that failed have null keys, which a map must not have. If a key
            # occurs several times, its last value counts, as in Java's maps.
            keys = children[0].fill_null("")
            last = arrays.last_of_each(lane, keys)
            lane, taken = lane[last], pa.array(last)
            type_ = shape(definition).stored
            fields = [type_.key_field, type_.item_field]
            pairs = [keys.take(taken), children[1].take(taken)]
            children = [pa.StructArray.from_arrays(pairs, fields=fields)]
        offsets = np.zeros(len(self._position) + 1, np.int32)
        np.cumsum(np.bincount(lane, minlength=len(self._position)), out=offsets[1:])
        return _nested(definition, active, children, [pa.py_buffer(offsets)])

    def _block_counts(self, active: Bools) -> Ints:
        """Read how many items follow; the block's size follows a negative number."""
        counts = self._varints(active)
        sized = active & (counts < 0)
        if sized.any():
            self._varints(sized)
            counts = np.abs(counts)
            self._fail(active & (counts < 0), lambda _: "a block of 2**63 items")
        return np.where(active & self._live, counts, 0)

    def _read_some(self, definition: Definition, lanes: Ints) -> pa.Array:
        """Read one value of some of the lanes."""
        some = Lanes(
            self._buffer, self._position[lanes], self._end[lanes], self._row[lanes]
        )
        some.failed, some.given_up = self.failed, self.given_up
        some._few_turns = self._few_turns
        column = some._read(definition, np.ones(len(lanes), np.bool_))
        self._position[lanes] = some._position
        self._live[lanes] = some._live
        return column

    def _pass(self, sizes: Ints | int, active: Bools) -> None:
        """Advance active lanes; a lane that has fewer bytes fails."""
        rest = self._end - self._position
        short = active & ((sizes < 0) | (sizes > rest))
        self._fail(short, lambda lane: f"{rest[lane]} bytes where more are needed")
        self._position = np.where(
            active & self._live, self._position + sizes, self._position
        )

    def _fail(self, lanes: Bools, fault: Callable[[int], str]) -> None:
        """Mark the live lanes among these as failed."""
        for lane in np.flatnonzero(lanes & self._live).tolist():
            self.failed[int(self._row[lane])] = fault(lane)
            self._live[lane] = False


def _nested(
    definition: Definition,
    active: Bools,
    children: list[pa.Array],
    buffers: list[pa.Buffer],
) -> pa.Array:
    """Return structs, lists or maps; null where lanes are not active."""
    type_ = shape(definition).stored
    validity = None if active.all() else arrays.bitmap(active)
    return pa.Array.from_buffers(
        type_, len(active), [validity, *buffers], children=children
    )


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
