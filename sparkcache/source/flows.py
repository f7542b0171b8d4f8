"""The flows of a declarative pipeline, as the planned consumers that they are.

`spark-pipelines` runs the server of Spark Connect in its own process, unless it is told
of another one. So the graph of flows can be seen there: once all are registered, in
Python and SQL, and before the first one runs.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.session import SparkSession

from sparkcache.errors import ConfigError, SourceError
from sparkcache.source.planning import elements, planned, scans_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.proto import PipelineCommand

    from sparkcache.consumers import Consumer

_log = logging.getLogger(__name__)


def plan_of(
    client: SparkConnectClient, run: PipelineCommand.StartRun
) -> AbstractContextManager[object]:
    """Plan all that the flows of a run are going to read, for as long as it lasts.

    Never fails: the run is the same without it, and tells what is wrong with a flow.
    """
    context = SparkContext._active_spark_context
    if context is None:
        _log.warning("flows are not planned: their server is not in this process")
        return nullcontext()
    try:
        spark, consumers = _found(context, client, run)
    except (ConfigError, SourceError, Py4JError, PySparkException) as error:
        reason = str(error).partition("\n\tat ")[0]
        _log.warning("flows are not planned: %s", reason)
        return nullcontext()
    _log.info("flows are planned, with %d scans of topics", len(consumers))
    return planned([spark], consumers) if consumers else nullcontext()


def _found(
    context: SparkContext, client: SparkConnectClient, run: PipelineCommand.StartRun
) -> tuple[SparkSession, tuple[Consumer, ...]]:
    """Return the server's session, and the scans in the flows that will be run."""
    jvm: Any = context._jvm
    holder = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    session = holder.getOrCreateIsolatedSession(
        client._user_id or "", client._session_id, jvm.scala.Option.empty()
    )
    spark = SparkSession(context, session.session())
    graphs = session.dataflowGraphRegistry()
    graph = graphs.getDataflowGraphOrThrow(run.dataflow_graph_id).toDataflowGraph()
    with _active(spark):
        flows = elements(graph.resolve().materializedFlows())
        return spark, tuple(
            consumer
            for flow in flows
            if is_refreshed(flow.destinationIdentifier().unquotedString(), run)
            for consumer in scans_of(DataFrame(flow.df(), spark))
        )


def is_refreshed(destination: str, run: PipelineCommand.StartRun) -> bool:
    """Tell whether a dataset is to be refreshed; its name may be given without schema.

    Where another schema has one of the same name, that is planned as well.
    """
    names = [*run.full_refresh_selection, *run.refresh_selection]
    return not names or any(
        f".{destination}".endswith(f".{name.replace('`', '')}") for name in names
    )


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Let the JVM's thread that this one speaks to work in a session."""
    sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
