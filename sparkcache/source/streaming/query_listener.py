"""Told of streaming queries, so that nodes know how far each has come, and of its end.

A task of a query tells the node of its own executor from where on the query reads. What
it read elsewhere, other nodes would still keep for it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, cast

from pyspark.sql.streaming.listener import StreamingQueryListener

from sparkcache.errors import ConfigError
from sparkcache.source.driver import node_rpc
from sparkcache.source.streaming import change_offsets, stream_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from sparkcache.model import Position

_TELL_EVERY_S = 10.0


class QueryListener(StreamingQueryListener):
    """Tells the nodes, by small jobs: of a query that is busy one in a while."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._reached: dict[UUID, dict[str, Position]] = {}
        self._untold: set[UUID] = set()
        self._told_s: dict[UUID, float] = {}

    def __repr__(self) -> str:
        return f"QueryListener({len(self._reached)} queries)"

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a query is known by its first task."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Note where a query is."""
        run = event.progress.runId
        found = reached(source.endOffset for source in event.progress.sources)
        if found and found != self._reached.get(run):
            self._reached[run] = found
            self._untold.add(run)
        if time.monotonic() >= self._told_s.get(run, 0.0) + _TELL_EVERY_S:
            self._tell(run)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Tell of the last batch, unless that was done."""
        self._tell(event.runId)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """End what the run of the query has still to read."""
        self._reached.pop(event.runId, None)
        self._told_s.pop(event.runId, None)
        self._untold.discard(event.runId)
        if self._context() is not None:
            node_rpc.end_plans(self._spark, (str(event.runId),))

    def _tell(self, run: UUID) -> None:
        if run not in self._untold:
            return
        self._untold.discard(run)
        context = self._context()
        if context is not None and not context.isLocal():  # else it has one node
            node_rpc.report_query_progress(self._spark, str(run), self._reached[run])
            self._told_s[run] = time.monotonic()

    def _context(self) -> JavaObject | None:
        """Return Spark's own context; None if it has stopped, and nodes with it."""
        context = cast("JavaObject | None", self._spark.sparkContext._jsc)
        return None if context is None or context.sc().isStopped() else context.sc()


def reached(offsets: Iterable[str]) -> dict[str, Position]:
    """Return how far a query has read each topic, in the last of its streams of it."""
    found: dict[str, Position] = {}
    for offset in offsets:
        for topic, at in _of_source(offset).items():
            found[topic] = min(at, found.get(topic, at))
    return found


def _of_source(offset: str) -> dict[str, Position]:
    """Return how far a stream has read topics; none of sources that are not ours."""
    try:
        parsed = json.loads(offset)
        of_table = change_offsets.reached(parsed)
        return of_table or stream_offsets.all_reached(parsed)
    except (ValueError, ConfigError):
        return {}
