"""Driver that streams a topic to files in small batches, so that a test can kill it.

    streaming_driver.py ROOT DIRECTORY OPTIONS

OPTIONS are the source's options as JSON. Prints "begun" once the query has started. Its
output and its checkpoint are below DIRECTORY.
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
