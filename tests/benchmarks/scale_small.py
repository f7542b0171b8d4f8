"""Many small ledgers: how many a second are read, cold and cached.

    .venv/bin/python tests/benchmarks/scale_small.py [--json] [--save]

4,000 Pulsar ledgers of about 4 KiB, four messages of 1 KiB each, from Versity's gateway
where it is installed, which answers at once. Two processes read them one partition
after another through a node with two loaders, as tasks of Spark do, three times:
nothing is held, everything is held, and everything is held for the last time.

    small_ledgers_s_cold    ledgers / processor seconds of tasks, node and loaders
    small_ledgers_s_warm    likewise, with everything held
    cpu_us                  processor microseconds a ledger, by process; those of the
                            server, which shares the cores, are not in the others
    wall_ledgers_s          ledgers a second on the machine's cores, server included

The best of three rounds after a warm-up.
"""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import boto3
import psutil
from botocore.client import Config

from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, values
from tests import gateway
from tests.benchmarks import cold_scan, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache_pulsar.testing import StoredObject

PACKAGES = ("boto3", "numpy", "obstore", "pyarrow")
LEDGERS = 4_000
MESSAGES = 4
VALUE_BYTES = 1024
PARTITION_BYTES = 4 << 20
ROUNDS = 3
TOPIC = "persistent://bench/pulsar/small"
READS = ("cold", "warm", "last")
_WRITERS = 8
_PR_SET_CHILD_SUBREAPER = 36


def measure() -> dict[str, Any]:
    """Return how many ledgers a second are read."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with _served() as endpoint:
        size = {"partition_bytes": PARTITION_BYTES}
        with cold_scan.Executor(_topic(), endpoint, **size) as executor:
            executor.cold()
            rounds = [_read(executor) for _ in range(ROUNDS)]
    best = {read: min((each[read] for each in rounds), key=_spent_us) for read in READS}
    return {
        "small_ledgers_s_cold": round(1e6 / _spent_us(best["cold"])),
        "small_ledgers_s_warm": round(1e6 / _spent_us(best["warm"])),
        "cpu_us": {
            read: {kind: round(us, 1) for kind, us in spent.items() if kind != "wall"}
            for read, spent in best.items()
        },
        "wall_ledgers_s": {
            read: round(1e6 / spent["wall"]) for read, spent in best.items()
        },
        "ledgers": LEDGERS,
        "server": gateway.PROGRAM if gateway.find() else "moto",
    }


def _topic() -> cold_scan.Topic:
    return cold_scan.Topic(
        {"topic": TOPIC},
        _objects,
        rows=LEDGERS * MESSAGES,
        value_bytes=LEDGERS * MESSAGES * VALUE_BYTES,
        is_data=lambda key: key.rpartition("-")[2].isdecimal(),
    )


def _objects() -> Iterator[StoredObject]:
    source = values(VALUE_BYTES)
    for ledger in range(1, LEDGERS + 1):
        messages = tuple(
            Message(value, sequence_id=number)
            for number, value in enumerate(islice(source, MESSAGES))
        )
        yield from ledger_objects(TOPIC, ledger, [Entry(messages).encode()])


@contextmanager
def _served() -> Iterator[str]:
    """Yield the URL of the fastest server there is, with the topic."""
    with (
        S3Server() as keys,
        keys.as_environment(),
        cold_scan.fast(keys) as endpoint,
    ):
        style = Config(s3={"addressing_style": "path"}, max_pool_connections=_WRITERS)
        session = boto3.session.Session()
        with closing(session.client("s3", endpoint_url=endpoint, config=style)) as s3:
            s3.create_bucket(Bucket=cold_scan.BUCKET)

            def put(stored: StoredObject) -> None:
                s3.put_object(
                    Bucket=cold_scan.BUCKET,
                    Key=stored.key,
                    Body=stored.data,
                    Metadata=stored.metadata,
                )

            with ThreadPoolExecutor(_WRITERS) as pool:
                list(pool.map(put, _objects()))
        yield endpoint


def _read(executor: cold_scan.Executor) -> dict[str, dict[str, float]]:
    """Read all ledgers three times; return microseconds a ledger of each."""
    spent = {}
    with executor.planned(len(READS)) as plan:
        for read in READS:
            cpu_s, began_s = _cpu_s(), time.perf_counter()
            executor.read(plan)
            seconds = {"wall": time.perf_counter() - began_s}
            seconds |= {
                kind: now - cpu_s.get(kind, 0) for kind, now in _cpu_s().items()
            }
            spent[read] = {kind: each / LEDGERS * 1e6 for kind, each in seconds.items()}
    return spent


def _spent_us(by_kind: dict[str, float]) -> float:
    return sum(by_kind.get(kind, 0) for kind in ("task", "node", "loader"))


def _cpu_s() -> dict[str, float]:
    """Return the processor seconds so far of each kind of process."""
    spent: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        kind = _kind(process)
        times = process.cpu_times()
        spent[kind] = spent.get(kind, 0) + times.user + times.system
    return spent


def _kind(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    if "sparkcache.node" in words:
        parent = process.parent()
        is_loader = parent is not None and "sparkcache.node" in parent.cmdline()
        return "loader" if is_loader else "node"
    is_server = gateway.PROGRAM in words or "s3_server" in words
    return "server" if is_server else "task"


if __name__ == "__main__":
    record.run("scale_small", measure, PACKAGES)
