"""Where everything of a topic lies, as tasks are told whose resolvers look around.

Most extents begin where the last one ends. So what is packed are gaps and sizes, and of
these first all the lowest bytes, then all the next: that takes a third of the room that
the extents themselves would.
"""

from __future__ import annotations

import pickle
import zlib
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.connector import LedgerMap
from sparkcache.source.batch.partitions import extent_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkcache.arrays import Ints
    from sparkcache.connector import Connector
    from sparkcache.model import Extent, Ledger


class ExtentIndex:
    """A topic as it was planned.

    It travels with every task and few need it, so it is unpacked when it is looked at.
    """

    def __init__(self, ledgers: Sequence[LedgerMap]) -> None:
        extents = [extent for of in ledgers for extent in of.extents]
        kinds = groupby((type(extent), extent.ranges) for extent in extents)
        unpacked = (
            [(of.ledger, len(of.extents)) for of in ledgers],
            [(kind, sum(1 for _ in same)) for kind, same in kinds],
            _packed((of.first, of.last) for of in extents),
            _packed((of.offset, of.offset + of.size_bytes) for of in extents),
        )
        self._packed = zlib.compress(pickle.dumps(unpacked), 1)

    @classmethod
    def told(cls, connector: Connector, ledgers: Sequence[LedgerMap]) -> ExtentIndex:
        """Return what tasks are told of a topic: nothing that is of no use to them."""
        return cls(ledgers if connector.needs_surrounding_runs else ())

    def __repr__(self) -> str:
        return f"ExtentIndex({len(self._packed)} bytes)"

    def extents(self) -> list[tuple[Ledger, Extent, int]]:
        """Return all extents in order, with the stored bytes before each."""
        return list(extent_offsets(self._ledgers()))

    def _ledgers(self) -> Iterator[LedgerMap]:
        packed = zlib.decompress(self._packed)
        ledgers, kinds, entries, places = pickle.loads(packed)  # noqa: S301
        (first, last), (begin, end) = _unpacked(entries), _unpacked(places)
        columns = (of.tolist() for of in (first, last, begin, end - begin))
        numbers = zip(*columns, strict=True)
        extents = chain.from_iterable(
            (kind(*of_extent, ranges) for of_extent in islice(numbers, count))
            for (kind, ranges), count in kinds
        )
        for ledger, count in ledgers:
            yield LedgerMap(ledger, tuple(islice(extents, count)))


def _packed(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Return the steps from number to number, their bytes of one rank together."""
    numbers = np.fromiter(chain.from_iterable(pairs), np.int64)
    steps = np.diff(numbers, prepend=np.int64(0))
    return steps.view(np.uint8).reshape(-1, 2, 8).transpose(1, 2, 0).tobytes()


def _unpacked(packed: bytes) -> Ints:
    """Return the first numbers of pairs, and the second ones."""
    ranks = np.frombuffer(packed, np.uint8).reshape(2, 8, -1).transpose(2, 0, 1)
    steps = np.ascontiguousarray(ranks).view(np.int64)
    return np.cumsum(steps.reshape(-1)).reshape(-1, 2).T
