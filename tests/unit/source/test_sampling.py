"""Rows per entry, and how often they are sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.config import StorageConfig
from sparkcache.source.streaming.sampling import RowSamples
from sparkcache.source.streaming.snapshot_view import SnapshotView
from sparkcache.storage import Traffic, open_storage
from tests.unit.source.stream_world import MESSAGES, TOPIC

if TYPE_CHECKING:
    from tests.unit.source.stream_world import World


def test_extents_are_looked_into_once_until_many_others_were(world: World) -> None:
    for ledger in range(3):
        world.offload(ledger, 2)
    traffic = Traffic()
    storage = open_storage(f"file://{world.directory}", StorageConfig(), traffic)
    snapshot = SnapshotView.find(world.reader().scan, storage, ()).snapshots[TOPIC]
    first, second, third = [
        (ledger_map.ledger, extent)
        for ledger_map in snapshot.ledgers
        for extent in ledger_map.extents
    ]
    samples = RowSamples(storage, max_extents=2)

    def gets(*asked: object) -> int:
        before = traffic.so_far()
        for ledger, extent in (first, second, third):
            if (ledger, extent) in asked:
                assert samples.rows(ledger, extent) == MESSAGES
        return (traffic.so_far() - before).gets

    assert gets(first, second) == 2
    assert gets(first) == 0
    assert gets(third) == 1
    assert gets(first, third) == 0
    assert gets(second) == 1
    assert repr(samples) == "RowSamples(2 extents)"
