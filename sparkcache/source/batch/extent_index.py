"""Compact extent index of a topic, shipped to tasks that read surrounding runs.

Most extents begin where the previous one ends. So the index stores gaps and sizes,
first the lowest bytes of all, then the next bytes, and compresses them. That takes a
third of the space of the extents themselves.
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
    from sparkcache.connector import Connector, Snapshot
    from sparkcache.model import Extent, Ledger, Loss


class ExtentIndex:
    """The extents of a topic at the time of planning, and its losses.

    Every task carries the index and few use it, so it is unpacked on access.
    """

    def __init__(
        self, ledgers: Sequence[LedgerMap], losses: Sequence[Loss] = ()
    ) -> None:
        extents = [extent for ledger_map in ledgers for extent in ledger_map.extents]
        kinds = groupby((type(extent), extent.ranges) for extent in extents)
        unpacked = (
            [(ledger_map.ledger, len(ledger_map.extents)) for ledger_map in ledgers],
            [(kind, sum(1 for _ in same)) for kind, same in kinds],
            _packed((extent.first, extent.last) for extent in extents),
            _packed(
                (extent.offset, extent.offset + extent.size_bytes) for extent in extents
            ),
        )
        self._packed = zlib.compress(pickle.dumps(unpacked), 1)
        self._losses = zlib.compress(pickle.dumps(tuple(losses)), 1) if losses else b""

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
        losses: Sequence[Loss] = pickle.loads(zlib.decompress(self._losses))  # noqa: S301
        return losses

    def _ledgers(self) -> Iterator[LedgerMap]:
        packed = zlib.decompress(self._packed)
        ledgers, kinds, entries, byte_ranges = pickle.loads(packed)  # noqa: S301
        (first, last), (begin, end) = _unpacked(entries), _unpacked(byte_ranges)
        columns = (ints.tolist() for ints in (first, last, begin, end - begin))
        numbers = zip(*columns, strict=True)
        extents = chain.from_iterable(
            (kind(*fields, ranges) for fields in islice(numbers, count))
            for (kind, ranges), count in kinds
        )
        for ledger, count in ledgers:
            yield LedgerMap(ledger, tuple(islice(extents, count)))


def _packed(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Return the differences of successive numbers, bytes of one rank together."""
    numbers = np.fromiter(chain.from_iterable(pairs), np.int64)
    steps = np.diff(numbers, prepend=np.int64(0))
    return steps.view(np.uint8).reshape(-1, 2, 8).transpose(1, 2, 0).tobytes()


def _unpacked(packed: bytes) -> Ints:
    """Return the array of the pairs' first numbers, and that of their second ones."""
    ranks = np.frombuffer(packed, np.uint8).reshape(2, 8, -1).transpose(2, 0, 1)
    steps = np.ascontiguousarray(ranks).view(np.int64)
    return np.cumsum(steps.reshape(-1)).reshape(-1, 2).T
