"""Offloaded ledgers read for the first time, beside their bytes fetched alone.

    .venv/bin/python tests/benchmarks/pulsar_scan.py --json

1 GiB of values in 4 ledgers, in messages of 1 KiB, batches of 128 KiB and blocks of
64 MiB, from an S3 server on the same machine, which takes its part of the same cores.
cold_scan.py says what is compared, gateway.py how to get a fast server.

    cold_over_raw       raw seconds / cold seconds, medians of 7 rounds after a warm-up
    mb_s                MB of values a second, cold
    gets_per_mib        of one cold scan: GETs / MiB of the topic
    bytes_over_topic    likewise: bytes sent / bytes of the topic
    cpu_s               of all processes, the server's included, medians
    mb_s_over_before    mb_s / that of the revision before, in turns (paired.py)

Messages are not compressed, as producers of Pulsar leave them. `lz4` is the same of
values compressed to about half.
"""

from __future__ import annotations

from typing import Any

from sparkcache_pulsar.testing import Codec, synthetic_topic
from tests.benchmarks import cold_scan, paired, record

TOPIC = "persistent://bench/pulsar/scan"
VALUES_BYTES = 1 << 30
LEDGERS = 4


def measure(before: str) -> dict[str, Any]:
    result = cold_scan.compare(topic(Codec.NONE))
    if before:
        paired_with = paired.compare(topic(Codec.NONE), before)
        result["mb_s_over_before"] = paired_with["over_before"]
        result["before"] = {"revision": before} | paired_with
    return result | {"lz4": cold_scan.compare(topic(Codec.LZ4))}


def topic(codec: Codec) -> cold_scan.Topic:
    return cold_scan.Topic(
        {"topic": TOPIC},
        lambda: synthetic_topic(TOPIC, VALUES_BYTES, ledgers=LEDGERS, codec=codec),
        rows=VALUES_BYTES // 1024,
        value_bytes=VALUES_BYTES,
        is_data=lambda key: key.rpartition("-")[2].isdecimal(),
    )


if __name__ == "__main__":
    packages = ("pyarrow", "numpy", "boto3", "moto")
    record.run("pulsar_scan", measure, packages, before=paired.BEFORE)
