"""The topic as a view, and two of the three flows that read it.

The third one is in billing.sql. The import of `dp` makes all three planned consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkcache import pipelines as dp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET = "s3://offload-bucket"
TOPIC = "persistent://shop/eu/orders"
ORDER = (
    "merchant string, currency string, total_cents long, "
    "customer struct<country: string>, payment struct<country: string, attempts: int>"
)

spark = SparkSession.active()


@dp.temporary_view
def orders() -> DataFrame:
    """The fields of all orders. Each flow that names this view reads the topic."""
    topic = spark.read.format("sparkcache").option("topic", TOPIC).load(BUCKET)
    order = F.from_json(F.col("value").cast("string"), ORDER).alias("order")
    return topic.select(order).select("order.*")


@dp.materialized_view
def fraud() -> DataFrame:
    """Number of orders of each country that look like fraud."""
    is_abroad = F.col("payment.country") != F.col("customer.country")
    return (
        spark.table("orders")
        .groupBy(F.col("customer.country").alias("country"))
        .agg(
            F.count("*").alias("orders"),
            F.count_if(is_abroad | (F.col("payment.attempts") > 2)).alias("suspicious"),
        )
    )


@dp.table
def archive() -> DataFrame:
    """Positions and keys of all orders: a stream, so later runs add new orders."""
    topic = spark.readStream.format("sparkcache").option("topic", TOPIC).load(BUCKET)
    return topic.select("__ledgerId", "__entryId", "__batchIndex", "__key")
