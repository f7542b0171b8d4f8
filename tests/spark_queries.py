"""A few queries, of the kinds that tests run, in a Spark application of their own.

`python spark_queries.py DIRECTORY` ends when its JVM has ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import sparkcache
from sparkcache.source.spark_version import has_spark
from sparkcache_pulsar.testing import synthetic_topic, write_directory

TOPIC = "persistent://shop/eu/orders"


def run(spark: SparkSession, directory: Path) -> None:
    """Read a topic, as a table and as a stream; group, join, sort, write and read."""
    bucket = directory / "bucket"
    write_directory(bucket, synthetic_topic(TOPIC, 1 << 20))
    options = {"topic": TOPIC, "runBytes": "64k"}
    orders = spark.read.format("sparkcache").options(**options).load(str(bucket))
    found = orders.select("__entryId", sf.length("value").alias("size"))
    with sparkcache.plan(found, orders):
        sizes = found.groupBy("__entryId").agg(sf.sum("size").alias("sum"))
        joined = found.join(sizes, "__entryId").orderBy("__entryId", "sum")
        joined.write.parquet(str(directory / "joined"))
        orders.count()
    sparkcache.stats(spark).collect()
    read = spark.read.parquet(str(directory / "joined")).where("sum > 0")
    read.selectExpr(
        "max(size) over (partition by sum)", "cast(sum as string)"
    ).toArrow()
    if has_spark("4.2"):
        stream = spark.readStream.format("sparkcache").options(**options)
        writer = stream.load(str(bucket)).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(directory / "rows"))
        query.awaitTermination()


def main(directory: Path) -> None:
    builder = sparkcache.configure(SparkSession.builder.master("local[2]"))
    builder = builder.config("spark.ui.port", "0")
    builder = builder.config("spark.local.dir", str(directory / "local"))
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    spark = builder.getOrCreate()
    run(spark, directory)
    gateway = pyspark.SparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()  # its JVM ends with it
    gateway.proc.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
