"""Two streams and a back-fill of one growing topic, which fetch each byte once.

    python examples/streaming.py [--mib 6]

Takes about a minute on two cores, most of it the start of Spark. It shows

- `readStream`: two queries that each read the topic from its beginning, in batches of
  a few MiB, and continue as further ledgers are offloaded;
- that a stream is a consumer like any other: data that the two streams and a planned
  back-fill read is fetched once, however far each of them has read;
- that all batches of a query together have the rows of one batch read.

Everything runs on this machine: an S3 server, which counts the bytes it sends, and
Spark.
The last line of the output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shop
from bucket import BUCKET, MIB, URL, offload, sent
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkcache
from sparkcache.testing.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

THIRD_ATTEMPT = "cast(value as string) like '%\"attempts\": 3%'"


def start(orders: DataFrame, name: str, directory: Path) -> StreamingQuery:
    """Start a query that writes its rows to files, from its last checkpoint."""
    return (
        orders.writeStream.queryName(name)
        .format("parquet")
        .option("checkpointLocation", str(directory / name / "checkpoint"))
        .start(str(directory / name / "rows"))
    )


def run(
    server: S3Server, spark: SparkSession, mib: int, directory: Path
) -> dict[str, Any]:
    """Run the streams and the back-fill; return the results."""
    topic_bytes, messages = offload(server, mib * MIB, range(1, 4))
    stream = (
        spark.readStream.format("sparkcache")
        .option("topic", shop.TOPIC)
        .option("maxBytesPerTrigger", "4m")
    ).load(URL)
    alerts = start(stream.filter(THIRD_ATTEMPT), "alerts", directory)
    archive = start(stream.select("__ledgerId", "__entryId"), "archive", directory)

    orders = spark.read.format("sparkcache").option("topic", shop.TOPIC)
    back_fill = shop.billing(orders.load(URL))
    with sparkcache.plan(back_fill):
        billed = back_fill.agg(F.sum("orders")).first()

    later_bytes, later = offload(server, mib * MIB // 2, range(4, 6))
    for query in (alerts, archive):
        query.processAllAvailable()
    fetched = sent(server).sent_bytes
    progress = [update["numInputRows"] for update in archive.recentProgress]
    for query in (alerts, archive):
        query.stop()
    archived = spark.read.parquet(str(directory / "archive" / "rows")).count()
    alerted = spark.read.parquet(str(directory / "alerts" / "rows")).count()
    alerts_read = orders.load(URL).filter(THIRD_ATTEMPT)
    return {
        "billed_rows": billed and billed[0],
        "archived_rows": archived,
        "rows": messages + later,
        "rows_before": messages,
        "batches": sum(rows > 0 for rows in progress),
        "alerts": alerted,
        "alerts_of_one_batch_read": alerts_read.count(),
        "topic_bytes": topic_bytes + later_bytes,
        "fetched_bytes": fetched,
    }


def main() -> int:
    """Run the example; return the exit status."""
    parser = argparse.ArgumentParser(description="Two streams and a back-fill.")
    parser.add_argument("--mib", type=int, default=6, help="size of the topic")
    mib = parser.parse_args().mib
    with (
        S3Server() as server,
        server.as_environment(),
        tempfile.TemporaryDirectory(prefix="sparkcache-streaming-") as directory,
    ):
        server.create_bucket(BUCKET)
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
        )
        spark = sparkcache.configure(builder).getOrCreate()
        # Runs that were read are held for a minute, for consumers that start later.
        sparkcache.install(spark, sparkcache.CacheConfig(ttl_after_read_s=60))
        spark.sparkContext.setLogLevel("ERROR")
        try:
            result = run(server, spark, mib, Path(directory))
        finally:
            spark.stop()
    print(f"{result['rows']} orders, in {result['batches']} batches of each stream;")
    print(f"{result['alerts']} of them need attention.")
    print(
        f"Three consumers read {result['topic_bytes'] / MIB:.1f} MiB each; the server "
        f"sent {result['fetched_bytes'] / MIB:.1f} MiB in all."
    )
    print(json.dumps(result))
    return 0 if result["archived_rows"] == result["rows"] else 1


if __name__ == "__main__":
    sys.exit(main())
