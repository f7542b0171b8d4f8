"""Plans: the scans of DataFrames and streams, registered before they run."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame

from sparkcache import connector as connectors
from sparkcache.config import COLUMNS_CONF, PLANS_CONF
from sparkcache.demand import NOT_BEGUN, Consumer, Plan
from sparkcache.errors import ConfigError
from sparkcache.source import settings
from sparkcache.source.driver import node_rpc
from sparkcache.source.options import ScanOptions
from sparkcache.source.planning.consumers import scans_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from sparkcache.source.planning.query_plans import FoundScan

_Plans: TypeAlias = tuple[Plan, ...]

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
    found = scans_of(dataframes)
    scans = [scan for each in found for scan in each.scans]
    consumers = tuple(consumer for each in found for consumer in each.consumers)
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


@contextmanager
def _columns_planned(
    plan_id: str, sessions: Sequence[SparkSession], scans: Iterable[FoundScan]
) -> Iterator[None]:
    """Ship which columns the scans of tables want within the block.

    The reader in the JVM then fetches no others: those that any planned scan of the
    table wants.
    """
    wanted: dict[object, set[str]] = {}
    table_of: dict[tuple[tuple[str, str], ...], object] = {}
    for options, columns in dict.fromkeys(scans):
        scan = ScanOptions.parse(dict(options))
        if connectors.find(scan.connector).can_narrow:
            table = scan.connector, scan.root, scan.selection.names
            wanted.setdefault(table, set()).update(columns)
            table_of[options] = table
    entries = [
        {"plan": plan_id, "options": dict(options), "columns": sorted(wanted[table])}
        for options, table in table_of.items()
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
