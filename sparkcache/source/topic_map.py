"""Where everything of a topic lies, as every task is told."""

from __future__ import annotations

import pickle
import zlib
from typing import TYPE_CHECKING

from sparkcache.source.partitions import located

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.connector import Connector, LedgerMap
    from sparkcache.model import Extent, Ledger


class TopicMap:
    """A topic as it was planned.

    It travels with every task and few need it, so it is unpacked when it is looked at.
    """

    def __init__(self, ledgers: Sequence[LedgerMap]) -> None:
        self._packed = zlib.compress(pickle.dumps(tuple(ledgers)), 1)

    @classmethod
    def told(cls, connector: Connector, ledgers: Sequence[LedgerMap]) -> TopicMap:
        """Return what tasks are told of a topic: nothing that is of no use to them."""
        return cls(ledgers if connector.has_neighbours else ())

    def __repr__(self) -> str:
        return f"TopicMap({len(self._packed)} bytes)"

    def extents(self) -> list[tuple[Ledger, Extent, int]]:
        """Return all extents in order, with the stored bytes before each."""
        return list(located(pickle.loads(zlib.decompress(self._packed))))  # noqa: S301
