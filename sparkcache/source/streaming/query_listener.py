"""Streaming listener that reports query progress and termination to the nodes.

A task of a query reports the query's position only to the node of its own executor.
Without the listener, other nodes would hold runs for it that it has already read.
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

_REPORT_EVERY_S = 10.0


class QueryListener(StreamingQueryListener):
    """Listener that reports by small jobs; for a busy query, every 10 seconds."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._reached: dict[UUID, dict[str, Position]] = {}
        self._unreported: set[UUID] = set()
        self._reported_s: dict[UUID, float] = {}

    def __repr__(self) -> str:
        return f"QueryListener({len(self._reached)} queries)"

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the nodes learn of a query from its first task."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the progress of a query; report it if a report is due."""
        run = event.progress.runId
        positions = reached(source.endOffset for source in event.progress.sources)
        if positions and positions != self._reached.get(run):
            self._reached[run] = positions
            self._unreported.add(run)
        if time.monotonic() >= self._reported_s.get(run, 0.0) + _REPORT_EVERY_S:
            self._report(run)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Report the last batch, unless it has been reported."""
        self._report(event.runId)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """End the plans of the query's run on the nodes."""
        self._reached.pop(event.runId, None)
        self._reported_s.pop(event.runId, None)
        self._unreported.discard(event.runId)
        if self._context() is not None:
            node_rpc.end_plans(self._spark, (str(event.runId),))

    def _report(self, run: UUID) -> None:
        if run not in self._unreported:
            return
        self._unreported.discard(run)
        context = self._context()
        if context is not None and not context.isLocal():  # a local Spark has one node
            node_rpc.report_query_progress(self._spark, str(run), self._reached[run])
            self._reported_s[run] = time.monotonic()

    def _context(self) -> JavaObject | None:
        """Return the JVM's SparkContext; None if it has stopped, with its nodes."""
        context = cast("JavaObject | None", self._spark.sparkContext._jsc)
        return None if context is None or context.sc().isStopped() else context.sc()


def reached(offsets: Iterable[str]) -> dict[str, Position]:
    """Return how far a query has read each topic; its slowest stream counts."""
    slowest: dict[str, Position] = {}
    for offset in offsets:
        for topic, position in _source_positions(offset).items():
            slowest[topic] = min(position, slowest.get(topic, position))
    return slowest


def _source_positions(offset: str) -> dict[str, Position]:
    """Return how far a stream has read its topics; empty for other sources."""
    try:
        parsed = json.loads(offset)
        in_table = change_offsets.reached(parsed)
        return in_table or stream_offsets.all_reached(parsed)
    except (ValueError, ConfigError):
        return {}
