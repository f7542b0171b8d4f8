"""The scans of topics in the query plans of DataFrames, as Spark will run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sparkcache.source.datasource import SparkCacheSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame


class FoundScan(NamedTuple):
    """A scan in a query plan.

    Attributes:
        options: The names and values of its options, as the user wrote them.
        columns: The columns that the query wants; empty for a stream.

    """

    options: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]


def scans_in(dataframe: DataFrame) -> list[FoundScan]:
    """Return the sparkcache scans in a DataFrame's plan, each as often as it reads.

    Spark runs the optimized plan: it has a CTE twice that is used twice, and lacks
    branches without rows. A streaming plan is not optimized before it runs.
    """
    java_dataframe: Any = getattr(dataframe, "_jdf", None)
    if java_dataframe is None:
        return []
    execution = java_dataframe.queryExecution()
    plan = execution.analyzed() if dataframe.isStreaming else execution.optimizedPlan()
    return list(_scans_below(plan))


def _scans_below(node: JavaObject, reads: int = 1) -> Iterator[FoundScan]:
    """Yield each sparkcache scan below a node of a plan.

    Each scan occurs as often as it is read: to cut rows into ranges, Spark first takes
    a sample, which reads everything below, down to the next exchange, once more. The
    exchanges are not known before the query runs; the end of the plan drops surplus
    reads.
    """
    kind = node.nodeName()
    scan = node
    if kind == "DataSourceV2ScanRelation":
        node = node.relation()
        kind = "DataSourceV2Relation"
    if kind == "DataSourceV2Relation":
        if node.table().name() == SparkCacheSource.name():
            columns = tuple(column.name() for column in elements(scan.output()))
            yield from [FoundScan(_options(node.options()), columns)] * reads
    elif kind == "StreamingRelationV2":
        if node.sourceName() == SparkCacheSource.name():
            yield FoundScan(_options(node.extraOptions()), ())
    elif kind == "InMemoryRelation":
        persisted = node.cacheBuilder()
        if not persisted.isCachedColumnBuffersLoaded():
            yield from _scans_below(persisted.logicalPlan(), reads)
    if _takes_a_sample(node, kind):
        reads = 2
    elif kind in {"Aggregate", "LocalLimit"}:  # an exchange, or no ranges
        reads = 1
    for child in elements(node.children()):
        if kind == "LocalLimit" and child.getClass().getSimpleName() == "Sort":
            child = child.child()
        yield from _scans_below(child, reads)
    for query in elements(node.subqueries()):
        yield from _scans_below(query)


def _takes_a_sample(node: JavaObject, kind: str) -> bool:
    """Return whether a node cuts its rows into ranges."""
    if kind == "Sort":
        return bool(node.__getattr__("global")())
    return kind == "RepartitionByExpression" and any(
        expression.getClass().getSimpleName() == "SortOrder"
        for expression in elements(node.partitionExpressions())
    )


def _options(java_options: JavaObject) -> tuple[tuple[str, str], ...]:
    """Return options by their names in the case that the user wrote."""
    entries = elements(java_options.asCaseSensitiveMap().entrySet())
    return tuple((entry.getKey(), entry.getValue()) for entry in entries)


def elements(sequence: JavaObject) -> Iterator[JavaObject]:
    """Yield the elements of a collection of Scala or Java.

    A Python loop over a Java collection ends with a Java exception, and pyspark makes
    14 calls to find out its class: that takes 17 ms.
    """
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
