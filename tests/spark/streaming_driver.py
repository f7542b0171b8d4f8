"""A driver that streams a topic to files, a little at a time; it is made to be killed.

    streaming_driver.py ROOT DIRECTORY OPTIONS

OPTIONS, as JSON, are those of the source. Says "begun" when the query has. What it
writes and its checkpoint are below DIRECTORY.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import sparkcache


def main(root: str, directory: str, options: str) -> None:
    builder = sparkcache.configure(SparkSession.builder.master("local[2]"))
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.local.dir", f"{directory}/local")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    sparkcache.install(spark)
    reader = spark.readStream.format("sparkcache").options(**json.loads(options))
    query = (
        reader.load(root)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/rows")
    )
    print("begun", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
