"""What reading costs, and what it would cost to compare the hashes of tags too."""

from __future__ import annotations

import pytest

from sparkcache.testing import MemoryStorage
from sparkcache_rocketmq import RocketMQConnector
from sparkcache_rocketmq.discovery import Catalog
from sparkcache_rocketmq.flat_files import read_queues
from sparkcache_rocketmq.queue_index import QueueIndex
from sparkcache_rocketmq.testing import synthetic_messages

from .stores import TOPIC, Store, extents

MIB = 1 << 20


@pytest.mark.parametrize(("value_bytes", "least", "most"), [(1024, 1, 2), (100, 5, 8)])
def test_items_would_double_the_requests_of_loads(
    value_bytes: int, least: float, most: float
) -> None:
    """The share of bytes, in percent, and the requests are those of the docs."""
    store = Store()
    store.writer().append(synthetic_messages(4 * MIB, value_bytes=value_bytes))
    storage = store.storage()
    found = extents(Catalog(storage, {}, "", MIB).snapshot(TOPIC))
    assert len(found) > 3
    assert _cost(storage) != (0, 0)
    connector = RocketMQConnector()
    for ledger, extent in found:
        stream = storage.open(ledger.object, extent.offset, extent.size_bytes)
        runs = connector.runs(extent, 1 << 16)
        assert len(list(connector.split(ledger, extent, runs, stream))) == len(runs)
    requests, read_bytes = _cost(storage)
    assert requests == len(found)
    assert read_bytes == sum(extent.size_bytes for _, extent in found)

    (files,) = read_queues(storage, lambda _: False).values()
    for _, extent in found:
        index = QueueIndex(storage, files.consume_queue)
        index.look_ahead([extent.first], extent.last - extent.first + 1)
    item_requests, item_bytes = _cost(storage)
    assert item_requests == requests
    assert least < 100 * item_bytes / read_bytes < most


def _cost(storage: MemoryStorage) -> tuple[int, int]:
    """Return the requests for ranges since the last call, and their bytes."""
    cost = storage.requests["open"], storage.bytes_opened
    storage.requests.clear()
    storage.bytes_opened = 0
    return cost
