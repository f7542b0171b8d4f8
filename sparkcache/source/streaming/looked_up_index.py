"""The extents of a topic, which a task that needs them looks up in storage.

Few tasks do: those whose first or last chunks, or transactions, continue in the runs of
other tasks. Without the JVM a batch has no way to send an index once. So where many
partitions would take a large index along, none does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.source.batch.partitions import extent_offsets
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.config import StorageConfig
    from sparkcache.connector import Snapshot
    from sparkcache.model import Extent, Ledger, Loss
    from sparkcache.source.options import ScanOptions

_MAX_TOPICS = 2  # that a Python worker keeps, with all their extents


class LookedUpIndex:
    """The extents of a topic, looked up once for each batch in a Python worker.

    A ledger that was stored since the batch was planned is there as well, as it is when
    a query restarts and repeats the batch.

    Args:
        scan: The options of the stream.
        config: How to access its storage.
        topic: The name of the topic.
        batch: Tells batches apart.

    """

    def __init__(
        self, scan: ScanOptions, config: StorageConfig, topic: str, batch: bytes
    ) -> None:
        self._lookup = (
            *(scan.connector, scan.root, tuple(scan.raw.items())),
            *(config, topic, batch),
        )

    def __repr__(self) -> str:
        return f"LookedUpIndex{self._lookup[:-1]}"

    def extents(self) -> list[tuple[Ledger, Extent, int]]:
        """Return all extents in order, with the stored bytes before each."""
        return list(extent_offsets(_snapshot(*self._lookup).ledgers))

    def losses(self) -> Sequence[Loss]:
        """Return the losses of the topic's snapshot."""
        return _snapshot(*self._lookup).losses


@lru_cache(maxsize=_MAX_TOPICS)
def _snapshot(
    connector: str,
    root: str,
    options: tuple[tuple[str, str], ...],
    config: StorageConfig,
    topic: str,
    batch: bytes,  # noqa: ARG001 - another batch looks again
) -> Snapshot:
    storage = open_storage(root, config, Traffic())
    catalog = connectors.find(connector).catalog(storage, dict(options))
    return catalog.snapshot(topic)
