"""An executor without Spark: a directory, and tasks that read through its node.

As a program it runs one task in a process of its own:

    python executor.py TOPIC_PATH STAGE CONFIG [RUNS]

The task reads the whole topic, prints a digest of it, and logs to stderr. With RUNS it
stops after that many runs, prints their number, and waits until its input ends.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.fetch import Scan
from sparkcache.model import ReadToken
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.client import read_scan
from sparkcache.node.messages import (
    GetMetrics,
    GetTopicMetrics,
    MetricsReply,
    TopicMetricsReply,
    ToTask,
)
from sparkcache.source.batch.partitions import partition, run_slice, wanted
from sparkcache.source.options import ScanOptions
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from sparkcache.connector import DecodedRun
    from sparkcache.demand import Plan
    from sparkcache.metrics import Metrics, TopicMetrics
    from sparkcache.node.messages import Message

COLUMNS = ("__ledgerId", "__entryId", "value")
DEADLINE_S = 30.0
TOPIC = "persistent://shop/eu/orders"
WHOLE = Consumer(TOPIC)


@dataclass(frozen=True)
class Executor:
    """An executor's directory and the path of the topic that its tasks read."""

    directory: Path
    topic: Path | str
    config: CacheConfig

    @property
    def address(self) -> Address:
        return Address(self.directory)

    @property
    def marker(self) -> str:
        """Text that the command lines of its processes contain."""
        return f"sparkcache.node {self.directory}"

    def scan(self) -> Scan:
        """The whole topic in one partition."""
        return whole_topic(self.topic, self.config)

    def read(
        self,
        stage: int = 0,
        scan: Scan | None = None,
        config: CacheConfig | None = None,
        consumer: Consumer = WHOLE,
        plans: tuple[Plan, ...] = (),
    ) -> Generator[DecodedRun, None, None]:
        """Read in this process, as a task of a stage."""
        config = config or self.config
        yield from read_scan(
            replace(scan or self.scan(), config=config.scan),
            reader=ReaderIdentity(ReadToken(stage, 0), "scan", consumer, math.inf),
            epoch=stage,
            settings=config.node,
            plans=plans,
        )

    def start_task(
        self, stage: int = 0, runs: int | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a task in a separate process."""
        command = [sys.executable, __file__, str(self.topic), str(stage)]
        command += [msgspec.json.encode(self.config).decode()]
        return subprocess.Popen(
            command if runs is None else [*command, str(runs)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {
                "SPARK_LOCAL_DIRS": str(self.directory),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            **options,
        )

    def metrics(self) -> Metrics:
        reply = self._request(GetMetrics())
        assert isinstance(reply, MetricsReply)
        return reply.metrics

    def topic_metrics(self) -> tuple[TopicMetrics, ...]:
        reply = self._request(GetTopicMetrics())
        assert isinstance(reply, TopicMetricsReply)
        return reply.topics

    def _request(self, request: Message) -> ToTask:
        channel: Channel[ToTask] = Channel(self.address.connect(DEADLINE_S), ToTask)
        with closing(channel):
            channel.send(request)
            return channel.receive()[0]


def whole_topic(path: Path | str, config: CacheConfig) -> Scan:
    options = ScanOptions.parse({"path": str(path), "topic": TOPIC})
    connector = connectors.find("pulsar")
    storage = open_storage(options.root, config.storage, Traffic())
    snapshot = connector.catalog(storage, options.raw).snapshot(TOPIC)
    consumer = options.consumer(TOPIC)
    (partitions,) = partition(
        [wanted(snapshot.ledgers, consumer)],
        options.min_partitions,
        sys.maxsize,
        lambda extent: len(connector.runs(extent, config.run_bytes)),
    )
    parts = (
        run_slice(piece, connector.runs(piece.extent, config.run_bytes), consumer)
        for part in partitions
        for piece in part.pieces
    )
    return Scan(options.root, config.storage, config.scan, tuple(filter(None, parts)))


def digest(runs: Iterable[DecodedRun]) -> str:
    """Return a digest of the rows, without keeping the runs."""
    digester = hashlib.sha256()
    for run in runs:
        for batch in run.batches:
            columns = (batch[name].to_pylist() for name in COLUMNS)
            for ledger, entry, value in zip(*columns, strict=True):
                digester.update(b"%d %d %d " % (ledger, entry, len(value)))
                digester.update(value)
    return digester.hexdigest()


def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition; fail if it does not hold within the deadline."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"not true within {deadline_s} s"
        time.sleep(0.01)


def main() -> None:
    topic, stage, config_json, *runs = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING)
    config = msgspec.json.decode(config_json, type=CacheConfig)
    executor = Executor(Path(os.environ["SPARK_LOCAL_DIRS"]), topic, config)
    reading = executor.read(int(stage))
    if runs:
        held = [next(reading) for _ in range(int(runs[0]))]
        print(len(held), flush=True)
        sys.stdin.read()
    print(digest(reading), flush=True)


if __name__ == "__main__":
    main()
