"""A topic read for the first time, beside its bytes fetched and thrown away.

In turns, by two processes that take one partition after another:

    cold    tasks in Python, as Spark's: the node has them load what they are the last
            to read
    raw     the same ranges through the same client, and nothing done with them

Bytes and GETs of data objects are counted by the project's own S3 server, in a scan of
their own. Times are taken with Versity's gateway where it is installed (gateway.py).
"""

from __future__ import annotations

import ctypes
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import psutil
from botocore.client import Config

from sparkcache import CacheConfig
from sparkcache import connector as connectors
from sparkcache.config import NodeConfig, StorageConfig
from sparkcache.demand import Consumer, Plan, ReaderIdentity
from sparkcache.fetch import Scan
from sparkcache.model import ReadToken
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.client import read_scan
from sparkcache.node.messages import EndPlans, ToTask
from sparkcache.source.batch.partitions import partition, run_slice, wanted
from sparkcache.source.options import ScanOptions
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing.s3_server import S3Server
from tests import gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkcache.connector import Storage
    from sparkcache_pulsar.testing import StoredObject

BUCKET = "offload"
PROCESSES = 2
ROUNDS = 7
READ_BYTES = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Topic:
    """A topic to be read.

    Attributes:
        options: As for the data source, without a path.
        objects: All its objects.
        rows: How many there are.
        value_bytes: Of all of them together.
        is_data: Tells data objects from others, by key.

    """

    options: dict[str, str]
    objects: Callable[[], Iterable[StoredObject]]
    rows: int
    value_bytes: int
    is_data: Callable[[str], bool]


@dataclass(frozen=True)
class Part:
    """What one task reads of which topic, whose stored bytes end there."""

    scan: Scan
    consumer: Consumer
    end: int


@dataclass(frozen=True)
class Task:
    """What one task reads, as whom, and under which plan."""

    scan: Scan
    reader: ReaderIdentity
    plan: Plan
    settings: NodeConfig


def compare(topic: Topic) -> dict[str, Any]:
    """Return what was counted and timed of a topic."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # for cpu_s
    with S3Server() as counting, counting.as_environment(), fast(counting) as endpoint:
        topic_bytes = write(topic, {counting.endpoint, endpoint})
        with Executor(topic, counting.endpoint) as executor:
            counting.forget()
            executor.cold()
            sent = [
                count
                for key, count in counting.counts().items()
                if topic.is_data(key.removeprefix(f"{BUCKET}/"))
            ]
        with Executor(topic, endpoint) as executor:
            spent = alternate([executor.raw, executor.cold])
        seconds = spent["seconds"]
        return {
            "cold_over_raw": round(seconds["raw"] / seconds["cold"], 3),
            "gets_per_mib": round(
                sum(count.gets for count in sent) / (topic_bytes / 2**20), 4
            ),
            "bytes_over_topic": round(
                sum(count.sent_bytes for count in sent) / topic_bytes, 4
            ),
            "mb_s": round(topic.value_bytes / seconds["cold"] / 1e6, 1),
            **spent,
            "topic_bytes": topic_bytes,
            "server": "moto" if endpoint == counting.endpoint else gateway.PROGRAM,
        }


def alternate(ways: list[Callable[[], None]]) -> dict[str, dict[str, float]]:
    """Do each in turn, again and again; return the medians of what each takes."""
    spent: dict[str, dict[str, list[float]]] = {"seconds": {}, "cpu_s": {}}
    for turn in range(ROUNDS + 1):
        for way in ways:
            began_s, cpu_began_s = time.perf_counter(), cpu_s(os.getpid())
            way()
            seconds = time.perf_counter() - began_s
            if turn:
                name = way.__name__
                spent["seconds"].setdefault(name, []).append(seconds)
                spent["cpu_s"].setdefault(name, []).append(
                    cpu_s(os.getpid()) - cpu_began_s
                )
    return {
        what: {way: round(statistics.median(times), 3) for way, times in by_way.items()}
        for what, by_way in spent.items()
    }


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of all that descend from it."""
    process = psutil.Process(pid)
    spent = [of.cpu_times() for of in (process, *process.children(recursive=True))]
    return sum(times.user + times.system for times in spent)


@contextmanager
def fast(server: S3Server) -> Iterator[str]:
    """Yield the URL of the fastest server there is, with another's credentials."""
    program = gateway.find()
    if program is None:
        yield server.endpoint
    else:
        keys = server.environment()
        key_id, secret = keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"]
        with gateway.serve(program, key_id=key_id, secret=secret) as fast_server:
            yield fast_server.endpoint


@contextmanager
def served(topic: Topic) -> Iterator[str]:
    """Yield the URL of a server that has a topic."""
    with S3Server() as server, server.as_environment(), fast(server) as endpoint:
        write(topic, {endpoint})
        yield endpoint


def write(topic: Topic, endpoints: set[str]) -> int:
    """Put a topic into a bucket of each server; return the bytes of its data."""
    style = Config(s3={"addressing_style": "path"})
    clients = [
        boto3.session.Session().client("s3", endpoint_url=endpoint, config=style)
        for endpoint in endpoints
    ]
    for client in clients:
        client.create_bucket(Bucket=BUCKET)
    written = 0
    for stored in topic.objects():
        for client in clients:
            client.put_object(
                Bucket=BUCKET,
                Key=stored.key,
                Body=stored.data,
                Metadata=stored.metadata,
            )
        written += len(stored.data) if topic.is_data(stored.key) else 0
    for client in clients:
        client.close()
    return written


class Executor:
    """Two processes, and a node for the tasks they run.

    Each scan is the only one in its plan, so the node lets go of what it has read.
    """

    def __init__(self, topic: Topic, endpoint: str, **settings: Any) -> None:
        self._topic = topic
        self._options = ScanOptions.parse(topic.options | {"path": f"s3://{BUCKET}"})
        self._config = CacheConfig(
            endpoint=endpoint, path_style=True, loaders=PROCESSES, **settings
        )
        self._parts = list(_parts(self._options, self._config))
        self._plans = 0
        self._stages = 0

    def __enter__(self) -> Executor:
        with ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory())
            self._directory = Path(name)
            self._processes = stack.enter_context(
                ProcessPoolExecutor(PROCESSES, get_context("fork"), _begin, (name,))
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def raw(self) -> None:
        """Fetch every range."""
        scans = [part.scan for part in self._parts]
        wanted = sum(one.extent.size_bytes for s in scans for one in s.slices)
        assert sum(self._processes.map(_fetch, scans)) == wanted

    def cold(self) -> None:
        """Read every row through the node, which has none of them."""
        with self.planned(1) as plan:
            self.read(plan)

    @contextmanager
    def planned(self, scans: int) -> Iterator[Plan]:
        """Plan scans of the whole topic; in the end the node lets go of it."""
        self._plans += 1
        consumers = tuple(dict.fromkeys(part.consumer for part in self._parts))
        plan = Plan(str(self._plans), consumers * scans)
        yield plan
        channel = Channel[ToTask](Address(self._directory).connect(1), ToTask)
        with closing(channel):
            channel.send(EndPlans((plan.id,)))

    def read(self, plan: Plan) -> None:
        """Do one of the scans of a plan."""
        self._stages += 1
        tasks = [
            Task(
                part.scan,
                ReaderIdentity(
                    ReadToken(self._stages, number),
                    str(self._stages),
                    part.consumer,
                    part.end,
                ),
                plan,
                self._config.node,
            )
            for number, part in enumerate(self._parts)
        ]
        assert sum(self._processes.map(_read, tasks)) == self._topic.rows


def _parts(options: ScanOptions, config: CacheConfig) -> Iterator[Part]:
    """Plan a scan as the data source does; yield what each task reads."""
    connector = connectors.find(options.connector)
    storage = open_storage(options.root, config.storage, Traffic())
    catalog = connector.catalog(storage, options.raw)
    topics = list(catalog.select(options.selection))
    consumers = [options.consumer(topic) for topic in topics]
    cut = partition(
        [
            wanted(catalog.snapshot(topic).ledgers, consumer)
            for topic, consumer in zip(topics, consumers, strict=True)
        ],
        options.min_partitions,
        config.partition_bytes,
        lambda extent: len(connector.runs(extent, config.run_bytes)),
    )
    for consumer, of_topic in zip(consumers, cut, strict=True):
        scans = []
        for part in of_topic:
            slices = (
                run_slice(
                    piece, connector.runs(piece.extent, config.run_bytes), consumer
                )
                for piece in part.pieces
            )
            scans.append(
                Scan(
                    options.root,
                    config.storage,
                    config.scan,
                    tuple(filter(None, slices)),
                )
            )
        end = max(one.topic_offset + one.extent.size_bytes for one in scans[-1].slices)
        yield from (Part(scan, consumer, end) for scan in scans)


# In the two processes


def _begin(directory: str) -> None:
    """Become a worker of the executor that has this directory."""
    os.environ["SPARK_LOCAL_DIRS"] = directory


def _read(task: Task) -> int:
    """Do a task; return the number of rows."""
    runs = read_scan(
        task.scan,
        reader=task.reader,
        epoch=task.reader.token.stage,
        settings=task.settings,
        plans=(task.plan,),
    )
    return sum(len(batch) for run in runs for batch in run.batches)


def _fetch(scan: Scan) -> int:
    """Fetch what a task would; return the number of bytes."""
    fetched = 0
    for one in scan.slices:
        extent = one.extent
        stream = _storage(scan.root, scan.storage).open(
            one.ledger.object, extent.offset, extent.size_bytes
        )
        while chunk := stream.read(READ_BYTES):
            fetched += len(chunk)
        stream.close()
    return fetched


@cache
def _storage(root: str, config: StorageConfig) -> Storage:
    return open_storage(root, config, Traffic())
