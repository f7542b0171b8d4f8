"""Told of streaming queries that end, so that nodes wait for them no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sparkcache.source import executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class EndedQueries(StreamingQueryListener):
    """Tells the nodes, by a small job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __repr__(self) -> str:
        return "EndedQueries()"

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a query is known by its first task."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Do nothing: tasks tell where it is."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: it goes on."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """End what the run of the query has still to read."""
        context: Any = self._spark.sparkContext._jsc
        if context is not None and not context.sc().isStopped():  # else nodes are, too
            executors.end_plans(self._spark, (str(event.runId),))
