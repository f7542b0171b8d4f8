"""Plans: the scans of DataFrames and streams, registered before they run."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame

from sparkcache import connector as connectors
from sparkcache.config import COLUMNS_CONF, PLANS_CONF, CacheConfig
from sparkcache.demand import NOT_BEGUN, Consumer, Plan
from sparkcache.errors import ConfigError
from sparkcache.source import settings
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.driver import node_rpc
from sparkcache.source.driver.progress_bar import drawing_progress
from sparkcache.source.options import ScanOptions
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_Plans: TypeAlias = tuple[Plan, ...]
_Scan: TypeAlias = "tuple[Mapping[str, str], SparkSession, Sequence[str]]"

# Threads share a session's conf. Without the lock, a thread could overwrite the plan of
# another, or restore one that has ended.
_plans_lock = threading.Lock()


@contextmanager
def plan(*dataframes: DataFrame) -> Iterator[Plan]:
    """Plan the actions on these DataFrames: one action on each, within the block.

    Every scan of a topic in their query plans is a consumer. Within the block,
    executors hold the runs that planned consumers have still to read, and fetch them
    once. At its end they evict the rest. Pass a DataFrame once for each action on it.

    Raises ConfigError if no DataFrame reads a topic.
    """
    _require_dataframes(dataframes)
    scans = [scan for dataframe in dataframes for scan in _scans(dataframe)]
    consumers = tuple(
        consumer
        for options, spark, _ in scans
        for consumer in _consumers(options, spark)
    )
    if not consumers:
        raise ConfigError(
            "plan(): none of these DataFrames reads format('sparkcache'), or they "
            "belong to Spark Connect, which does not show their query plans"
        )
    sessions = list(dict.fromkeys(frame.sparkSession for frame in dataframes))
    with (
        planned(sessions, consumers) as begun,
        _columns_planned(begun.id, sessions, scans),
    ):
        yield begun


@contextmanager
def planned(
    sessions: Sequence[SparkSession],
    consumers: tuple[Consumer, ...],
    streams: tuple[Consumer, ...] = (),
) -> Iterator[Plan]:
    """Ship a plan with the tasks of these sessions within the block; then end it.

    Each of the streams has a plan that has not begun: once the stream starts, it
    reports its reads itself.
    """
    plan = Plan(uuid.uuid4().hex, consumers)
    awaited = (Plan(uuid.uuid4().hex, (stream,), NOT_BEGUN) for stream in streams)
    begun = (plan, *awaited) if consumers else tuple(awaited)
    for spark in sessions:
        _change_plans(spark, lambda plans: (*_without(plans, begun), *begun))
    try:
        yield plan
    finally:
        if (
            sessions[0].sparkContext._jsc is not None
        ):  # else Spark and its nodes have stopped
            for spark in sessions:
                _change_plans(spark, lambda plans: _without(plans, begun))
            node_rpc.end_plans(sessions[0], tuple(plan.id for plan in begun))


def scans_of(dataframe: DataFrame) -> list[Consumer]:
    """Return the sparkcache scans in a DataFrame's plan, each as a consumer.

    Spark runs the optimized plan: it has a CTE twice that is used twice, and lacks
    branches without rows. A streaming plan is not optimized before it runs.
    """
    return [
        consumer
        for options, spark, _ in _scans(dataframe)
        for consumer in _consumers(options, spark)
    ]


def _scans(dataframe: DataFrame) -> list[_Scan]:
    """Return the options of the scans in a DataFrame's plan, and their columns."""
    java_dataframe: Any = getattr(dataframe, "_jdf", None)
    if java_dataframe is None:
        return []
    execution = java_dataframe.queryExecution()
    plan = execution.analyzed() if dataframe.isStreaming else execution.optimizedPlan()
    return [
        (options, dataframe.sparkSession, columns)
        for options, columns in _scan_options(plan)
    ]


@contextmanager
def _columns_planned(
    plan_id: str, sessions: Sequence[SparkSession], scans: Iterable[_Scan]
) -> Iterator[None]:
    """Ship which columns the scans of tables want within the block.

    The reader in the JVM then fetches no others: those that any planned scan of the
    table wants.
    """
    wanted: dict[object, set[str]] = {}
    options_of: dict[object, list[Mapping[str, str]]] = {}
    for options, _, columns in scans:
        scan = ScanOptions.parse(options)
        if connectors.find(scan.connector).can_narrow:
            table = scan.connector, scan.root, scan.selection.names
            wanted.setdefault(table, set()).update(columns)
            options_of.setdefault(table, []).append(options)
    entries = [
        {"plan": plan_id, "options": options, "columns": sorted(wanted[table])}
        for table, all_options in options_of.items()
        for options in all_options
    ]
    if not entries:
        yield
        return
    for spark in sessions:
        _change_columns(spark, plan_id, entries)
    try:
        yield
    finally:
        if sessions[0].sparkContext._jsc is not None:  # else Spark has stopped
            for spark in sessions:
                _change_columns(spark, plan_id, [])


def _change_columns(
    spark: SparkSession, plan_id: str, entries: Iterable[Mapping[str, Any]]
) -> None:
    """Replace the columns that a plan ships with a session."""
    with _plans_lock:
        shipped = json.loads(spark.conf.get(COLUMNS_CONF, "[]") or "[]")
        kept = [entry for entry in shipped if entry["plan"] != plan_id]
        if changed := [*kept, *entries]:
            spark.conf.set(COLUMNS_CONF, json.dumps(changed))
        else:
            spark.conf.unset(COLUMNS_CONF)


def _consumers(options: Mapping[str, str], spark: SparkSession) -> list[Consumer]:
    """Return a scan's consumers, one for each topic.

    Only the bucket tells which topics a pattern or a name of several topics means. A
    stream that starts at `latest` has no consumers: it reads nothing of what is stored.
    """
    scan = ScanOptions.parse(options)
    if scan.starts_latest:
        return []
    connector = connectors.find(scan.connector)
    names: Iterable[str] = scan.selection.names
    if not names or not all(map(connector.is_single_topic, names)):
        conf = dict(spark.conf.getAll)
        config = CacheConfig.resolve(options=scan.raw, conf=conf)
        storage = open_storage(scan.root, config.storage, Traffic())
        with drawing_progress():
            names = connector.catalog(storage, scan.raw).select(scan.selection)
    return [scan.consumer(name) for name in names]


def _require_dataframes(arguments: tuple[object, ...]) -> None:
    if not arguments:
        raise ConfigError("plan() needs the DataFrames on which actions will run")
    for value in arguments:
        if not isinstance(value, DataFrame):
            raise ConfigError(
                f"plan() takes DataFrames, as in plan(a, b), not a "
                f"{type(value).__name__}"
            )
        if value.isStreaming:
            raise ConfigError(
                "plan() takes DataFrames of batches: a stream is a consumer by itself, "
                "as soon as its query starts"
            )


def _change_plans(spark: SparkSession, change: Callable[[_Plans], _Plans]) -> None:
    """Change the plans that Spark ships with the tasks of a session."""
    with _plans_lock:
        plans = change(settings.decode_plans(spark.conf.get(PLANS_CONF, "")))
        if plans:
            spark.conf.set(PLANS_CONF, settings.encode_plans(plans))
        else:
            spark.conf.unset(PLANS_CONF)


def _without(plans: _Plans, others: _Plans) -> _Plans:
    ids = {plan.id for plan in others}
    return tuple(plan for plan in plans if plan.id not in ids)


def _scan_options(
    node: JavaObject, reads: int = 1
) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield options and columns of each sparkcache scan below a node of a plan.

    Each scan occurs as often as it is read: to cut rows into ranges, Spark first takes
    a sample, which reads everything below, down to the next exchange, once more. The
    exchanges are not known before the query runs; the end of the plan drops surplus
    reads.
    """
    kind = node.getClass().getSimpleName()
    scan = node
    if kind == "DataSourceV2ScanRelation":
        node = node.relation()
        kind = "DataSourceV2Relation"
    if kind == "DataSourceV2Relation":
        if node.table().name() == SparkCacheSource.name():
            columns = [column.name() for column in elements(scan.output())]
            yield from [(_options(node.options()), columns)] * reads
    elif kind == "StreamingRelationV2":
        if node.sourceName() == SparkCacheSource.name():
            yield _options(node.extraOptions()), []
    elif kind == "InMemoryRelation":
        persisted = node.cacheBuilder()
        if not persisted.isCachedColumnBuffersLoaded():
            yield from _scan_options(persisted.logicalPlan(), reads)
    if _takes_a_sample(node, kind):
        reads = 2
    elif kind in {"Aggregate", "LocalLimit"}:  # an exchange, or no ranges
        reads = 1
    for child in elements(node.children()):
        if kind == "LocalLimit" and child.getClass().getSimpleName() == "Sort":
            child = child.child()
        yield from _scan_options(child, reads)
    for query in elements(node.subqueries()):
        yield from _scan_options(query)


def _takes_a_sample(node: JavaObject, kind: str) -> bool:
    """Return whether a node cuts its rows into ranges."""
    if kind == "Sort":
        return bool(node.__getattr__("global")())
    return kind == "RepartitionByExpression" and any(
        expression.getClass().getSimpleName() == "SortOrder"
        for expression in elements(node.partitionExpressions())
    )


def _options(java_options: JavaObject) -> dict[str, str]:
    """Return options by their names in the case that the user wrote."""
    entries = elements(java_options.asCaseSensitiveMap().entrySet())
    return {entry.getKey(): entry.getValue() for entry in entries}


def elements(sequence: JavaObject) -> Iterator[JavaObject]:
    """Yield the elements of a collection of Scala or Java.

    A Python loop over a Java collection ends with a Java exception, and pyspark makes
    14 calls to find out its class: that takes 17 ms.
    """
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
