"""Planned consumers: what is going to read a topic, before it does."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame

from sparkcache.config import PLANS_CONF
from sparkcache.consumers import Consumer, Plan
from sparkcache.errors import ConfigError
from sparkcache.source import executors, settings
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.options import ScanOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

_Plans: TypeAlias = tuple[Plan, ...]

# Threads share a session's conf: without it one would write over another's plan, or
# write back one that is over.
_plans_lock = threading.Lock()


@contextmanager
def plan(*dataframes: DataFrame) -> Iterator[Plan]:
    """Plan the actions on these DataFrames: one action on each, within the block.

    Every scan of a topic in their plans is a consumer of it. While the block lasts,
    executors keep what a planned consumer has still to read, and fetch it once. At its
    end they drop what is left. A DataFrame on which several actions will be run is
    given as many times.

    Raises ConfigError if there is nothing to plan.
    """
    _require_dataframes(dataframes)
    consumers = tuple(
        consumer for dataframe in dataframes for consumer in scans_of(dataframe)
    )
    if not consumers:
        raise ConfigError(
            "plan(): none of these DataFrames reads format('sparkcache'), or they are "
            "of a session of Spark Connect, whose plans cannot be seen"
        )
    planned = Plan(uuid.uuid4().hex, consumers)
    sessions = list(dict.fromkeys(frame.sparkSession for frame in dataframes))
    for spark in sessions:
        _change_plans(spark, lambda plans: (*_without(plans, planned), planned))
    try:
        yield planned
    finally:
        if sessions[0].sparkContext._jsc is not None:  # else stopped, nodes and all
            for spark in sessions:
                _change_plans(spark, lambda plans: _without(plans, planned))
            executors.end_plans(sessions[0], (planned.id,))


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


def _require_dataframes(given: tuple[object, ...]) -> None:
    if not given:
        raise ConfigError("plan() needs the DataFrames that are going to be computed")
    for value in given:
        if not isinstance(value, DataFrame):
            raise ConfigError(
                f"plan() takes DataFrames, as in plan(a, b), not a "
                f"{type(value).__name__}"
            )


def _change_plans(spark: SparkSession, change: Callable[[_Plans], _Plans]) -> None:
    """Change which plans a session's tasks carry along."""
    with _plans_lock:
        plans = change(settings.decode_plans(spark.conf.get(PLANS_CONF, "")))
        if plans:
            spark.conf.set(PLANS_CONF, settings.encode_plans(plans))
        else:
            spark.conf.unset(PLANS_CONF)


def _without(plans: _Plans, planned: Plan) -> _Plans:
    return tuple(plan for plan in plans if plan.id != planned.id)


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
