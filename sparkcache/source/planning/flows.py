"""The flows of a declarative pipeline, as the planned consumers that they are.

`spark-pipelines` runs the server of Spark Connect in its own process, unless it is told
of another one. So the graph of flows can be seen there: once all are registered, in
Python and SQL, and before the first one runs. What the server tells of the run says
which of them are over.
"""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.session import SparkSession

from sparkcache.errors import ConfigError, SourceError
from sparkcache.source.planning.plans import elements, planned, scans_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.proto import PipelineCommand

    from sparkcache.demand import Consumer

_Scans: TypeAlias = "dict[str, list[Consumer]]"  # by flow

_OVER = re.compile(
    r"Flow '?(?P<flow>[^']+?)'? (has COMPLETED|has FAILED more than|SKIPPED|.*STOPPED)"
)

_log = logging.getLogger(__name__)


def under_plan(
    events: Iterator[dict[str, Any]],
    client: SparkConnectClient,
    run: PipelineCommand.StartRun,
) -> Iterator[dict[str, Any]]:
    """Yield what a server tells of a run, while what its flows read is planned.

    One plan for all of them, since a task reads for every plan that it knows. It ends
    with the last flow that reads a topic, however that ends, and with the run at last.
    """
    with ExitStack() as plan:
        left = _begin(plan, client, run)
        for event in events:
            told = getattr(event.get("pipeline_event_result"), "event", None)
            over = _OVER.match(told.message) if told else None
            if over and over["flow"] in left:
                left.remove(over["flow"])
                if not left:
                    plan.close()
            yield event


def _begin(
    plan: ExitStack, client: SparkConnectClient, run: PipelineCommand.StartRun
) -> set[str]:
    """Plan all that the flows of a run are going to read; return those that read any.

    Never fails: the run is the same without it, and tells what is wrong with a flow.
    """
    context = SparkContext._active_spark_context
    if context is None:
        _log.warning("flows are not planned: their server is not in this process")
        return set()
    try:
        spark, scans, streams = _scans_of(context, client, run)
    except (ConfigError, SourceError, Py4JError, PySparkException) as error:
        reason = str(error).partition("\n\tat ")[0]
        _log.warning("flows are not planned: %s", reason)
        return set()
    _log.info("scans of topics that are planned: %s; streams: %s", scans, streams)
    if scans or streams:
        consumers = tuple(chain(*scans.values())), tuple(chain(*streams.values()))
        plan.enter_context(planned([spark], *consumers))
    return {*scans, *streams}


def _scans_of(
    context: SparkContext, client: SparkConnectClient, run: PipelineCommand.StartRun
) -> tuple[SparkSession, _Scans, _Scans]:
    """Return the server's session, and what flows will scan, once and as streams."""
    jvm: Any = context._jvm
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    holder = service.getOrCreateIsolatedSession(
        client._user_id or "", client._session_id, jvm.scala.Option.empty()
    )
    spark = SparkSession(context, holder.session())
    graphs = holder.dataflowGraphRegistry()
    defined = graphs.getDataflowGraphOrThrow(run.dataflow_graph_id).toDataflowGraph()
    with _active(spark):
        graph = defined.resolve()
        if not graph.resolved():  # the run says what is wrong before any flow begins
            return spark, {}, {}
        frames = {
            flow.identifier().unquotedString(): DataFrame(flow.df(), spark)
            for flow in elements(graph.materializedFlows())
            if is_refreshed(flow.destinationIdentifier().unquotedString(), run)
        }
        found = {
            flow: scans for flow, rows in frames.items() if (scans := scans_of(rows))
        }
        streams = {flow for flow in found if frames[flow].isStreaming}
    once = {flow: scans for flow, scans in found.items() if flow not in streams}
    return spark, once, {flow: found[flow] for flow in streams}


def is_refreshed(destination: str, run: PipelineCommand.StartRun) -> bool:
    """Tell whether a dataset is to be refreshed; its name may be given without schema.

    Where another schema has one of the same name, that is planned as well.
    """
    names = [*run.full_refresh_selection, *run.refresh_selection]
    wanted = tuple(f".{name.replace('`', '')}".lower() for name in names)
    return not names or f".{destination}".lower().endswith(wanted)


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Let the JVM's thread that this one speaks to work in a session."""
    jvm: Any = spark._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
