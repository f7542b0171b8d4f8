"""Concurrent readers, checked by the requests that the S3 server gets."""

from __future__ import annotations

import math
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.fetch import RunSlice, Scan
from sparkcache.model import ReadToken
from sparkcache.node.client import read_scan
from sparkcache.source.options import ScanOptions
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import synthetic_topic
from tests import leaks
from tests.integration.executor import TOPIC, Executor, digest, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sparkcache.connector import DecodedRun

    Runs = Iterator[DecodedRun]

BUCKET = "offload"
LEDGERS = 8
READERS = 12


@pytest.fixture
def server() -> Iterator[S3Server]:
    """A topic of 8 ledgers on a server that responds after 5 ms."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        for stored in synthetic_topic(TOPIC, LEDGERS << 21, ledgers=LEDGERS):
            server.put(BUCKET, stored.key, stored.data, stored.metadata)
        server.behave(latency_s=0.005)
        yield server


@pytest.fixture
def node(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Executor]:
    """An executor whose node has two loaders."""
    config = CacheConfig(
        run_bytes=128 << 10, loaders=2, endpoint=server.endpoint, path_style=True
    )
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    executor = Executor(tmp_path, tmp_path, config)
    yield executor
    shutil.rmtree(tmp_path)
    until(lambda: not leaks.processes_with(executor.marker))


def every_run(config: CacheConfig) -> list[RunSlice]:
    """Every run of the topic, each as a slice of its own."""
    options = ScanOptions.parse({"path": f"s3://{BUCKET}", "topic": TOPIC})
    connector = connectors.find("pulsar")
    storage = open_storage(options.root, config.storage, Traffic())
    snapshot = connector.catalog(storage, options.raw).snapshot(TOPIC)
    return [
        RunSlice(ledger_map.ledger, extent, tuple(runs), index, index + 1)
        for ledger_map in snapshot.ledgers
        for extent in ledger_map.extents
        for runs in [connector.runs(extent, config.run_bytes)]
        for index in range(len(runs))
    ]


def joined(runs: list[RunSlice]) -> tuple[RunSlice, ...]:
    """Join runs that are consecutive in an extent to one slice."""
    slices: list[RunSlice] = []
    for run in runs:
        if slices and slices[-1].ledger == run.ledger:
            run = replace(run, start=slices.pop().start)
        slices.append(run)
    return tuple(slices)


@pytest.mark.parametrize("seed", range(3))
def test_readers_of_overlapping_ranges_fetch_every_byte_once(
    server: S3Server, node: Executor, seed: int
) -> None:
    runs, pick = every_run(node.config), random.Random(seed)
    ranges = [sorted(pick.sample(range(len(runs) + 1), 2)) for _ in range(READERS)]
    all_started = threading.Barrier(READERS)

    def read(number: int, first: int, stop: int, config: CacheConfig) -> Runs:
        return read_scan(
            Scan(
                f"s3://{BUCKET}", config.storage, config.scan, joined(runs[first:stop])
            ),
            reader=ReaderIdentity(
                ReadToken(number, 0), "scan", Consumer(TOPIC), math.inf
            ),
            epoch=0,
            settings=config.node,
            plans=(),
        )

    def read_together(number: int) -> str:
        first, stop = ranges[number]
        reading = read(number, first, stop, node.config)
        begun = [next(reading)]
        all_started.wait()
        return digest(chain(begun, reading))

    written = list(read(0, 0, len(runs), replace(node.config, enabled=False)))
    server.forget()
    with ThreadPoolExecutor(READERS) as readers:
        digests = list(readers.map(read_together, range(READERS)))
    assert digests == [digest(written[first:stop]) for first, stop in ranges]
    sizes = {run.ledger.object.uri: run.ledger.object.size_bytes for run in runs}
    for key, count in server.counts().items():
        assert count.sent_bytes <= sizes[f"s3://{key}"], f"{count.gets} GETs of {key}"
    assert node.metrics().received_bytes <= sum(sizes.values())
