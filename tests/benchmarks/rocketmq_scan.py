"""Queues of RocketMQ's tiered store read for the first time, and then again.

    .venv/bin/python tests/benchmarks/rocketmq_scan.py --json

1 GiB of values in 4 queues, in messages of 1 KiB with tag and key, a segment of 256 MiB
each, one object per segment, from an S3 server on the same machine, which takes its
part of the same cores. cold_scan.py says what is compared, gateway.py how to get a
fast server.

    cold_over_raw       raw seconds / cold seconds, medians of 7 rounds after a warm-up
    cold_msgs_s         messages a second, cold
    warm_msgs_s         likewise of what the node holds: two readers on two cores, each
                        taking one partition after another
    gets_per_mib        of one cold scan: GETs / MiB of the topic
    bytes_over_topic    likewise: bytes sent / bytes of the topic
    cpu_s               of all processes, the server's included, medians
    cold_over_before    seconds of the revision before / cold seconds, in turns
                        (paired.py)

GETs and bytes are those of commit logs; planning reads consume queues, too.
"""

from __future__ import annotations

import statistics
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkcache_pulsar.testing import StoredObject
from sparkcache_rocketmq.testing import QueueWriter, synthetic_messages
from tests.benchmarks import cold_scan, paired, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.demand import Plan

VALUES_BYTES = 1 << 30
QUEUES = 4
ROWS = VALUES_BYTES // 1024
ROUNDS = 7
CACHE_BYTES = 4 << 30
MESSAGES_AT_ONCE = 1 << 15


def measure(before: str) -> dict[str, Any]:
    result = cold_scan.compare(TOPIC)
    if before:
        paired_with = paired.compare(TOPIC, before)
        result["cold_over_before"] = paired_with["over_before"]
        result["before"] = {"revision": before} | paired_with
    return result | {
        "cold_msgs_s": round(ROWS / result["seconds"]["cold"]),
        "warm_msgs_s": warm_msgs_s(),
    }


def warm_msgs_s() -> int:
    """Return the messages a second that the node serves of what it holds."""
    with cold_scan.served(TOPIC) as endpoint:
        executor = cold_scan.Executor(TOPIC, endpoint, max_bytes=CACHE_BYTES)
        with executor, executor.planned(ROUNDS + 1) as plan:
            executor.read(plan)
            seconds = [timed(executor, plan) for _ in range(ROUNDS)]
    return round(ROWS / statistics.median(seconds))


def timed(executor: cold_scan.Executor, plan: Plan) -> float:
    began_s = time.perf_counter()
    executor.read(plan)
    return time.perf_counter() - began_s


def objects() -> Iterator[StoredObject]:
    for queue_id in range(QUEUES):
        written: dict[str, bytes] = {}
        writer = QueueWriter(written, topic="Scan", queue_id=queue_id)
        messages = synthetic_messages(VALUES_BYTES // QUEUES, seed=queue_id)
        while writer.append(islice(messages, MESSAGES_AT_ONCE)):
            pass
        for key, data in written.items():
            yield StoredObject(key, {}, data)


TOPIC = cold_scan.Topic(
    {"topic": "Scan", "connector": "rocketmq"},
    objects,
    rows=ROWS,
    value_bytes=VALUES_BYTES,
    is_data=lambda key: "/COMMIT_LOG/" in key,
)

if __name__ == "__main__":
    packages = ("pyarrow", "numpy", "boto3", "moto")
    record.run("rocketmq_scan", measure, packages, before=paired.BEFORE)
