"""Planned consumers: what is going to read a topic, before it does."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame

from sparkcache import connector as connectors
from sparkcache.config import PLANS_CONF, CacheConfig
from sparkcache.demand import NOT_BEGUN, Consumer, Plan
from sparkcache.errors import ConfigError
from sparkcache.source import settings
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.driver import node_rpc
from sparkcache.source.driver.progress_bar import drawn
from sparkcache.source.options import ScanOptions
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from py4j.java_gateway import JavaObject
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
    sessions = list(dict.fromkeys(frame.sparkSession for frame in dataframes))
    with planned(sessions, consumers) as begun:
        yield begun


@contextmanager
def planned(
    sessions: Sequence[SparkSession],
    consumers: tuple[Consumer, ...],
    streams: tuple[Consumer, ...] = (),
) -> Iterator[Plan]:
    """Have the tasks of these sessions tell the nodes of a plan; end it for all.

    Each of the streams is expected to begin, and says for itself then what it reads.
    """
    plan = Plan(uuid.uuid4().hex, consumers)
    awaited = (Plan(uuid.uuid4().hex, (it,), NOT_BEGUN) for it in streams)
    begun = (plan, *awaited) if consumers else tuple(awaited)
    for spark in sessions:
        _change_plans(spark, lambda plans: (*_without(plans, begun), *begun))
    try:
        yield plan
    finally:
        if sessions[0].sparkContext._jsc is not None:  # else stopped, nodes and all
            for spark in sessions:
                _change_plans(spark, lambda plans: _without(plans, begun))
            node_rpc.end_plans(sessions[0], tuple(plan.id for plan in begun))


def scans_of(dataframe: DataFrame) -> list[Consumer]:
    """Return the sparkcache scans in a DataFrame's plan, each as a consumer.

    The optimized plan is what will be run: a CTE that is used twice is there twice, a
    branch that yields nothing is gone. What streams is not optimized before it runs.
    """
    java_dataframe: Any = getattr(dataframe, "_jdf", None)
    if java_dataframe is None:
        return []
    execution = java_dataframe.queryExecution()
    found = _scan_options(
        execution.analyzed() if dataframe.isStreaming else execution.optimizedPlan()
    )
    spark = dataframe.sparkSession
    return [consumer for options in found for consumer in _consumers(options, spark)]


def _consumers(options: Mapping[str, str], spark: SparkSession) -> list[Consumer]:
    """Return a scan's consumers, one for each topic.

    Which topics they are is known from the bucket alone, unless a name can only be that
    of one. A stream that begins behind all that is there reads none of it.
    """
    scan = ScanOptions.parse(options)
    if scan.starts_latest:
        return []
    connector = connectors.find(scan.connector)
    names: Iterable[str] = scan.selection.names
    if not names or not all(map(connector.is_single_topic, names)):
        conf = dict(spark.conf.getAll)
        config = CacheConfig.resolve(options=scan.raw, conf=conf)
        storage = open_storage(scan.root, config, Traffic())
        with drawn():
            names = connector.catalog(storage, scan.raw).select(scan.selection)
    return [scan.consumer(name) for name in names]


def _require_dataframes(given: tuple[object, ...]) -> None:
    if not given:
        raise ConfigError("plan() needs the DataFrames that are going to be computed")
    for value in given:
        if not isinstance(value, DataFrame):
            raise ConfigError(
                f"plan() takes DataFrames, as in plan(a, b), not a "
                f"{type(value).__name__}"
            )
        if value.isStreaming:
            raise ConfigError(
                "plan() takes what is computed once: a stream is a consumer by itself, "
                "from when its query is started"
            )


def _change_plans(spark: SparkSession, change: Callable[[_Plans], _Plans]) -> None:
    """Change which plans a session's tasks carry along."""
    with _plans_lock:
        plans = change(settings.decode_plans(spark.conf.get(PLANS_CONF, "")))
        if plans:
            spark.conf.set(PLANS_CONF, settings.encode_plans(plans))
        else:
            spark.conf.unset(PLANS_CONF)


def _without(plans: _Plans, others: _Plans) -> _Plans:
    ids = {plan.id for plan in others}
    return tuple(plan for plan in plans if plan.id not in ids)


def _scan_options(node: JavaObject, reads: int = 1) -> Iterator[dict[str, str]]:
    """Yield the options of each sparkcache scan below a node of an optimized plan.

    Each as often as it is read: to cut rows into ranges Spark takes a sample first, and
    reads all that lies below up to the next exchange once more. Where that is, is not
    known before the query runs; a read too many is forgotten at the end of the plan.
    """
    kind = node.getClass().getSimpleName()
    if kind == "DataSourceV2ScanRelation":
        node = node.relation()
        kind = "DataSourceV2Relation"
    if kind == "DataSourceV2Relation":
        if node.table().name() == SparkCacheSource.name():
            yield from [_options(node.options())] * reads
    elif kind == "StreamingRelationV2":
        if node.sourceName() == SparkCacheSource.name():
            yield _options(node.extraOptions())
    elif kind == "InMemoryRelation":
        persisted = node.cacheBuilder()
        if not persisted.isCachedColumnBuffersLoaded():
            yield from _scan_options(persisted.logicalPlan(), reads)
    if _takes_a_sample(node, kind):
        reads = 2
    elif kind in {"Aggregate", "LocalLimit"}:  # an exchange, or no range to be cut
        reads = 1
    for child in elements(node.children()):
        if kind == "LocalLimit" and child.getClass().getSimpleName() == "Sort":
            child = child.child()
        yield from _scan_options(child, reads)
    for query in elements(node.subqueries()):
        yield from _scan_options(query)


def _takes_a_sample(node: JavaObject, kind: str) -> bool:
    """Tell whether a node cuts its rows into ranges."""
    if kind == "Sort":
        return bool(node.__getattr__("global")())
    return kind == "RepartitionByExpression" and any(
        expression.getClass().getSimpleName() == "SortOrder"
        for expression in elements(node.partitionExpressions())
    )


def _options(given: JavaObject) -> dict[str, str]:
    """Return options as they were spelled."""
    entries = elements(given.asCaseSensitiveMap().entrySet())
    return {entry.getKey(): entry.getValue() for entry in entries}


def elements(sequence: JavaObject) -> Iterator[JavaObject]:
    """Yield what is in a collection of Scala or Java.

    Python's own way through one of Java's ends with an error of Java's, of which
    pyspark finds out the class by 14 questions: that takes 17 ms.
    """
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
