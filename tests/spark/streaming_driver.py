"""A driver that streams a topic to files, a little at a time; it is made to be killed.

    streaming_driver.py BUCKET TOPIC DIRECTORY ROWS

A batch has ROWS at most. Says "begun" when the query has. What it writes and its
checkpoint are below DIRECTORY.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import sparkcache


def main(bucket: str, topic: str, directory: str, rows_of_batch: str) -> None:
    builder = sparkcache.configure(SparkSession.builder.master("local[2]"))
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.local.dir", f"{directory}/local")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    sparkcache.install(spark)
    rows = (
        spark.readStream.format("sparkcache")
        .options(topic=topic, runBytes="4k", maxRowsPerTrigger=rows_of_batch)
        .load(bucket)
    )
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/rows")
    )
    print("begun", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
