"""The runs before and after those that a task reads."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer
from sparkcache.fetch import RunSlice, Scan
from sparkcache.model import ReadToken, qualified_topic
from sparkcache.source.batch.extent_index import ExtentIndex
from sparkcache.source.batch.surrounding_runs import SurroundingRuns
from sparkcache.source.settings import TaskSettings
from sparkcache.storage import Traffic, open_storage
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "persistent://shop/eu/orders"
RUNS = 9


@pytest.fixture
def surrounding(tmp_path: Path) -> SurroundingRuns:
    """Return the surrounding runs of a task that reads the run in the middle."""
    connector, root = PulsarConnector(), tmp_path.as_uri()
    entry = Entry((Message(b"x" * 2_000),)).encode()
    write_directory(tmp_path, ledger_objects(TOPIC, 7, [entry] * RUNS))
    config = CacheConfig(enabled=False, run_bytes=1 << 10)
    storage = open_storage(root, config.storage, Traffic())
    ledgers = connector.catalog(storage, {}).snapshot(TOPIC).ledgers
    (ledger, (extent,)) = ledgers[0].ledger, ledgers[0].extents
    runs = tuple(connector.runs(extent, config.run_bytes))
    assert len(runs) == RUNS
    middle = RunSlice(ledger, extent, runs, RUNS // 2, RUNS // 2 + 1)
    return SurroundingRuns(
        ExtentIndex(ledgers),
        Scan(root, config.storage, config.scan, (middle,)),
        Consumer(qualified_topic(TOPIC, root)),
        TaskSettings(ReadToken(0, 0), 0, config, ()),
    )


def test_runs_after_in_order(surrounding: SurroundingRuns) -> None:
    (middle,) = surrounding.scan.keys()
    found = [key.run.first for key, _ in surrounding.after(middle)]
    assert found == [5, 6, 7, 8]
    assert not surrounding.losses()


def test_runs_before_in_groups_that_grow(surrounding: SurroundingRuns) -> None:
    found = [
        [run.batches[0]["__entryId"][0].as_py() for run in group]
        for group in surrounding.before()
    ]
    assert found == [[3], [1, 2], [0]]


def test_runs_that_were_read_are_released(surrounding: SurroundingRuns) -> None:
    (middle,) = surrounding.scan.keys()
    later = surrounding.after(middle)
    later_batch = weakref.ref(next(later)[1].batches[0])
    group = next(surrounding.before())
    before_batch = weakref.ref(next(group).batches[0])
    assert later_batch() is None
    assert before_batch() is None
