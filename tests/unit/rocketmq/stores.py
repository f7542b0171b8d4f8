"""Queues in a storage, for tests of how they are found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkcache.connector import Selection
from sparkcache.testing import MemoryStorage, as_dicts
from sparkcache_rocketmq import RocketMQConnector
from sparkcache_rocketmq.discovery import Catalog
from sparkcache_rocketmq.extents import EXTENT_BYTES, runs
from sparkcache_rocketmq.testing import Message, QueueWriter, Row

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from sparkcache.connector import RawRun, Snapshot, Storage
    from sparkcache.model import Extent, Ledger, Loss, RunKey

TOPIC = "DefaultCluster/broker-a/TopicA/0"
FOLDER = "212d6b50_DefaultCluster/broker-a/TopicA/0"
RECORD_BYTES = 91 + len("TopicA")
"""Of a message without body and properties."""

SEGMENT_BYTES = 10 * RECORD_BYTES


@dataclass
class Store:
    """Objects that writers put, and the storage that has them."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def writer(self, **how: Any) -> QueueWriter:
        return QueueWriter(self.objects, **how)

    def storage(self) -> MemoryStorage:
        storage = MemoryStorage()
        for name, data in self.objects.items():
            storage.put(name, data)
        return storage

    def named(self, part: str) -> list[str]:
        return [name for name in sorted(self.objects, key=base) if part in name]

    def catalog(self, extent_bytes: int = EXTENT_BYTES, **options: str) -> Catalog:
        return Catalog(self.storage(), options, "", extent_bytes)

    def snapshot(self, extent_bytes: int = EXTENT_BYTES, **options: str) -> Snapshot:
        return self.catalog(extent_bytes, **options).snapshot(TOPIC)

    def read_each(
        self, extent_bytes: int, run_bytes: int
    ) -> tuple[list[Row], list[Loss]]:
        """Return what `read_each` does of the first queue, and what it never had."""
        snapshot = self.snapshot(extent_bytes)
        rows, losses = read_each(self.storage(), snapshot, run_bytes)
        return rows, [*snapshot.losses, *losses]

    def remove(self, part: str) -> None:
        for name in self.named(part):
            del self.objects[name]

    def select(self, *names: str, pattern: re.Pattern[str] | None = None) -> list[str]:
        return list(self.catalog().select(Selection(names, pattern)))


def base(name: str) -> tuple[str, str]:
    """Return what orders the objects of a folder."""
    return name.rpartition("/")[0], name[-20:]


def messages(count: int, size_bytes: int = 0) -> list[Message]:
    """Messages of an equal size; of different contents where there is room."""
    return [
        Message(str(n).encode()[:size_bytes].ljust(size_bytes)) for n in range(count)
    ]


def extents(snapshot: Snapshot) -> list[tuple[Ledger, Extent]]:
    return [
        (ledger_map.ledger, extent)
        for ledger_map in snapshot.ledgers
        for extent in ledger_map.extents
    ]


def spans(snapshot: Snapshot) -> list[tuple[int, int]]:
    return [(extent.first, extent.last) for _, extent in extents(snapshot)]


def offsets(snapshot: Snapshot) -> list[int]:
    """Return the queue offsets that are to be read."""
    return [
        offset for first, last in spans(snapshot) for offset in range(first, last + 1)
    ]


def keys(snapshot: Snapshot, run_bytes: int) -> Iterator[RunKey]:
    from sparkcache.model import RunKey

    for ledger, extent in extents(snapshot):
        for run in runs(extent, run_bytes):
            yield RunKey(ledger, run)


def read_each(
    storage: Storage, snapshot: Snapshot, run_bytes: int
) -> tuple[list[Row], list[Loss]]:
    """Read each run for itself, from where it begins to where the next one does.

    What an extent's runs become when they are read together has to be the same.
    """
    connector = RocketMQConnector()
    rows: list[Row] = []
    losses: list[Loss] = []
    for ledger, extent in extents(snapshot):
        end = extent.offset + extent.size_bytes
        together = runs(extent, run_bytes)
        stream = storage.open(ledger.object, extent.offset, extent.size_bytes)
        raws = list(connector.split(ledger, extent, together, stream))
        ends = [*(raw.offset for raw in raws[1:]), end]
        for raw, stop in zip(raws, ends, strict=True):
            stream = storage.open(ledger.object, raw.offset, stop - raw.offset)
            (alone,) = connector.split(ledger, extent, [raw.run], stream)
            assert (alone.offset, alone.data) == (raw.offset, raw.data)
            assert lost(alone) == lost(raw)
            found = connector.decode(ledger, alone, 1 << 20)
            losses += found.losses
            for batch in found.batches:
                rows += as_dicts(batch)
    return rows, losses


def lost(raw: RawRun) -> list[tuple[int, int]]:
    return [(loss.first, loss.last) for loss in raw.losses]


def check_places(
    snapshot: Snapshot, places: Mapping[int, tuple[int, int]], bases: Mapping[str, int]
) -> None:
    """Check that each extent has the bytes of its records, and no others at its ends.

    `bases` has where each object begins in the commit log, by its URI.
    """
    for ledger, extent in extents(snapshot):
        at = bases[ledger.object.uri] + extent.offset
        assert places[extent.first][0] == at
        assert sum(places[extent.last]) == at + extent.size_bytes


def log_bases(names: Iterable[str]) -> dict[str, int]:
    return {f"memory://bucket/{name}": int(name[-20:]) for name in names}
