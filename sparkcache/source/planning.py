"""Planned consumers: what is going to read a topic, before it does."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkcache.config import PLANS_CONF
from sparkcache.consumers import Consumer, Plan
from sparkcache.errors import ConfigError
from sparkcache.source import executors, settings
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.options import ScanOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


@contextmanager
def plan(*dataframes: DataFrame) -> Iterator[Plan]:
    """Plan the actions on these DataFrames: one action on each, within the block.

    Every scan of a topic in their plans is a consumer of it. While the block lasts,
    executors keep what a planned consumer has still to read, and fetch it once. At its
    end they drop what is left. A DataFrame on which several actions will be run is
    given as many times.

    Raises ConfigError if there is nothing to plan.
    """
    if not dataframes:
        raise ConfigError("plan() needs the DataFrames that are going to be computed")
    spark = dataframes[0].sparkSession
    consumers = tuple(
        consumer for dataframe in dataframes for consumer in scans_of(dataframe)
    )
    if not consumers:
        raise ConfigError(
            "plan(): none of these DataFrames reads format('sparkcache'), or they are "
            "of a session of Spark Connect, whose plans cannot be seen"
        )
    planned = Plan(uuid.uuid4().hex, consumers)
    before = spark.conf.get(PLANS_CONF, "")
    active = (*settings.decode_plans(before), planned)
    spark.conf.set(PLANS_CONF, settings.encode_plans(active))
    try:
        yield planned
    finally:
        _take_back(spark, planned)
        executors.end_plans(spark, (planned.id,))


def scans_of(dataframe: DataFrame) -> list[Consumer]:
    """Return the sparkcache scans in a DataFrame's plan, each as a consumer.

    The optimized plan is what will be run: a CTE that is used twice is there twice, a
    branch that yields nothing is gone.
    """
    java_dataframe: Any = getattr(dataframe, "_jdf", None)
    if java_dataframe is None:
        return []
    return [
        ScanOptions.parse(options).consumer()
        for options in _scan_options(java_dataframe.queryExecution().optimizedPlan())
    ]


def _take_back(spark: Any, planned: Plan) -> None:  # noqa: ANN401
    active = settings.decode_plans(spark.conf.get(PLANS_CONF, ""))
    rest = tuple(other for other in active if other.id != planned.id)
    if rest:
        spark.conf.set(PLANS_CONF, settings.encode_plans(rest))
    else:
        spark.conf.unset(PLANS_CONF)


def _scan_options(node: Any) -> Iterator[dict[str, str]]:  # noqa: ANN401 - a Java object
    """Yield the options of each sparkcache scan below a node of an optimized plan."""
    kind = node.getClass().getSimpleName()
    if kind == "DataSourceV2ScanRelation":
        node = node.relation()
        kind = "DataSourceV2Relation"
    if kind == "DataSourceV2Relation":
        if node.table().name() == SparkCacheSource.name():
            yield dict(node.options().asCaseSensitiveMap())
    elif kind == "InMemoryRelation":
        persisted = node.cacheBuilder()
        if not persisted.isCachedColumnBuffersLoaded():
            yield from _scan_options(persisted.logicalPlan())
    for children in (node.children(), node.subqueries()):
        iterator = children.iterator()
        while iterator.hasNext():
            yield from _scan_options(iterator.next())
