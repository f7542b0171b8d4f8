"""Driver that runs pipelines one after another, each with flows that read one topic.

    pipeline_driver.py BUCKET TOPIC DIRECTORY

DIRECTORY is the working directory; tables and traces are written there. Prints one JSON
object: for each pipeline run, its outcome, the number of plans at its first and at its
last event, and how many runs of entries the node holds afterwards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import (
    SparkConnectGraphElementRegistry,
)
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.session import SparkSession as ClassicSession

from sparkcache import pipelines as dp
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.spark_version import has_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

BUCKET, TOPIC, DIRECTORY = sys.argv[1:]
OPTIONS = {"topic": TOPIC, "runBytes": "4k"}
SQL = """
CREATE MATERIALIZED VIEW {0}_of_sql AS SELECT __key, count(*) AS n FROM {0} GROUP BY 1;
CREATE MATERIALIZED VIEW {0}_of_that AS SELECT sum(n) AS n FROM {0}_of_sql;
"""


def read(spark: SparkSession) -> DataFrame:
    return spark.read.format("sparkcache").options(**OPTIONS).load(BUCKET)


def define(spark: SparkSession, registry: Any, name: str) -> None:
    """Define a view, three flows on it (one reads it twice), a table flow, a stream."""

    @dp.temporary_view(name=name)
    def view() -> DataFrame:
        return read(spark)

    @dp.materialized_view(name=f"{name}_one")
    def one() -> DataFrame:
        return spark.table(name).groupBy("__key").count()

    @dp.materialized_view(name=f"{name}_two")
    def two() -> DataFrame:
        return spark.table(name).union(spark.table(name)).groupBy("__key").count()

    if has_spark("4.2"):

        @dp.table(name=f"{name}_stream")
        def stream() -> DataFrame:
            rows = spark.readStream.format("sparkcache").options(**OPTIONS)
            return rows.load(BUCKET).select("__key")

    registry.register_sql(SQL.format(name), Path("flows.sql"))


def define_failing(spark: SparkSession, _: Any, name: str) -> None:
    """Define a flow that reads the topic, and a flow that fails."""

    @dp.materialized_view(name=f"{name}_one")
    def one() -> DataFrame:
        return read(spark).groupBy("__key").count()

    @dp.materialized_view(name=f"{name}_failing")
    def failing() -> DataFrame:
        return read(spark).select(F.raise_error(F.lit("no")).cast("string").alias("a"))


def define_unresolved(spark: SparkSession, _: Any, name: str) -> None:
    """Define a flow that reads the topic, and a flow on a table that does not exist."""

    @dp.materialized_view(name=f"{name}_one")
    def one() -> DataFrame:
        return read(spark).groupBy("__key").count()

    @dp.materialized_view(name=f"{name}_wrong")
    def wrong() -> DataFrame:
        return spark.table("nowhere")


def run(
    spark: SparkSession,
    name: str,
    definitions: Callable[[SparkSession, Any, str], None],
    **selection: Any,
) -> tuple[str, int, int]:
    """Run a pipeline; return `completed` or the error, and the numbers of plans."""
    graph = create_dataflow_graph(spark, None, None, {})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    with graph_element_registration_context(registry):
        definitions(spark, registry, name)
    defaults = {
        "full_refresh": [],
        "full_refresh_all": False,
        "refresh": [],
        "dry": False,
    }
    storage = Path(DIRECTORY, "storage").as_uri()
    plans, outcome = [0], "completed"
    try:
        for event in start_run(
            spark, graph, storage=storage, **{**defaults, **selection}
        ):
            if "pipeline_event_result" in event:
                conf = spark.conf.get("spark.sparkcache.plans", "[]")
                plans.append(len(json.loads(conf or "[]")))
    except PySparkException as error:
        outcome = str(error)
    return outcome, max(plans[:2]), plans[-1]


def main() -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.local.dir", f"{DIRECTORY}/local")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.pipelines.maxFlowRetryAttempts", "0")
        .config("spark.sparkcache.trace", f"{DIRECTORY}/trace")
        .getOrCreate()
    )
    context = SparkContext._active_spark_context
    assert context is not None
    classic = ClassicSession(context)
    outcomes = {}
    for name, definitions, selection in (
        ("dry", define, {"dry": True}),
        ("every", define, {}),
        ("part", define, {"refresh": ["part_one"]}),
        ("failing", define_failing, {}),
        ("unresolved", define_unresolved, {}),
    ):
        outcome = run(spark, name, definitions, **selection)
        held = sum(node_metrics(classic).values(), Metrics()).runs
        outcomes[name] = [*outcome, held]
    spark.stop()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
