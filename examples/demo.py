"""The main example: three consumers of one topic in S3, without and with the cache.

    python examples/demo.py [--mib 64] [--latency-ms 20] [--warm-ups 1] [--json]

Takes about a minute on two cores.

Everything runs on this machine: an S3 server (moto), which delays its responses a
little, as S3 does, and counts the bytes it sends; and Spark with two cores. The topic
is written as a Pulsar broker offloads it. Each consumer reads the whole topic.

Both ways are run once with a small topic first. So the reported seconds are those of
the jobs, without the start of Spark and of the cache. With --warm-ups 0 they include
the start of the cache and everything else that is slow only once.

The last line of the output is one JSON object; with --json it is the whole output.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import report
import shop
from bucket import BUCKET, MIB, offload
from consumers import Consumers
from pyspark.sql import SparkSession
from rich.console import Console
from session import started_spark

from sparkcache.testing.s3_server import S3Server

if TYPE_CHECKING:
    from report import Way
    from rich.progress import Progress

LEDGERS = range(1, 5)


def run(
    mib: int, latency_s: float, warm_ups: int, progress: Progress, log: Path
) -> tuple[Way, Way, list[tuple[int, int]]]:
    """Write the topic; read it both ways. Return both, and what was written."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        task = progress.add_task("writing the topic", total=len(LEDGERS) + 1)
        offload(server, mib * MIB // 8, range(100, 101), shop.WARM_UP)
        progress.advance(task)
        written = []
        for ledger in LEDGERS:
            size_bytes = mib * MIB // len(LEDGERS)
            written.append(offload(server, size_bytes, range(ledger, ledger + 1)))
            progress.advance(task)
        server.behave(latency_s=latency_s)
        task = progress.add_task("starting Spark, warming up", total=1 + 2 * warm_ups)
        builder = SparkSession.builder.appName("sparkcache demo")
        with started_spark(builder, log) as spark:
            progress.advance(task)
            demo = Consumers(server, spark, progress)
            for way in [demo.without, demo.with_cache] * warm_ups:
                way(shop.WARM_UP)
                progress.advance(task)
            server.forget()
            without = demo.without(shop.TOPIC, "reading without a cache")
            with_cache = demo.with_cache(shop.TOPIC, "reading with sparkcache")
    return without, with_cache, written


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Three consumers of one topic, without and with the cache."
    )
    parser.add_argument("--mib", type=int, default=64, help="size of the topic")
    parser.add_argument(
        "--latency-ms",
        type=float,
        default=20.0,
        help="how long the S3 server waits before it responds",
    )
    parser.add_argument(
        "--warm-ups",
        type=int,
        default=1,
        help="how often both ways are run first with a small topic",
    )
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    arguments = parser.parse_args()
    console = Console(quiet=arguments.json)
    progress = report.progress_bars(console)
    with tempfile.TemporaryDirectory(prefix="sparkcache-demo-") as directory:
        log = Path(directory) / "spark.log"
        try:
            with progress:
                ways = run(
                    arguments.mib,
                    arguments.latency_ms / 1000,
                    arguments.warm_ups,
                    progress,
                    log,
                )
            result = report.summary(
                arguments.mib, arguments.latency_ms, arguments.warm_ups, *ways
            )
            succeeded = report.is_as_promised(result)
        except BaseException:
            succeeded = False
            raise
        finally:
            if not succeeded and log.exists():
                sys.stderr.write(log.read_text(errors="replace"))
    for table in report.tables(result):
        console.print(table)
    console.print(report.remarks(result))
    print(json.dumps(result))
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
