"""Plans for the flows of a declarative pipeline, whose scans are planned consumers.

`spark-pipelines` runs the server of Spark Connect in its own process, unless a remote
one is set. So this process can read the graph of flows: when all are registered, in
Python and SQL, and before the first one runs. The server's events of the run report
which flows have finished.
"""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.session import SparkSession

from sparkcache.errors import ConfigError, SourceError
from sparkcache.source.active_session import active
from sparkcache.source.planning.consumers import scans_of
from sparkcache.source.planning.plans import planned
from sparkcache.source.planning.query_plans import elements
from sparkcache.source.spark_version import has_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from py4j.java_gateway import JavaObject
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.proto import PipelineCommand

    from sparkcache.demand import Consumer

_Scans: TypeAlias = "dict[str, list[Consumer]]"  # by flow

_FINISHED = re.compile(
    r"Flow '?(?P<flow>[^']+?)'? (has COMPLETED|has FAILED more than|SKIPPED|.*STOPPED)"
)

_log = logging.getLogger(__name__)


def under_plan(
    events: Iterator[dict[str, Any]],
    client: SparkConnectClient,
    run: PipelineCommand.StartRun,
) -> Iterator[dict[str, Any]]:
    """Yield the events of a run, with a plan for the reads of its flows.

    All flows share one plan, since a task reads for every plan that it knows. The plan
    ends when the last flow that reads a topic succeeds or fails, at the latest with the
    run.
    """
    with ExitStack() as plan:
        unfinished = _begin(plan, client, run)
        for event in events:
            flow_event = getattr(event.get("pipeline_event_result"), "event", None)
            finished = _FINISHED.match(flow_event.message) if flow_event else None
            if finished and finished["flow"] in unfinished:
                unfinished.remove(finished["flow"])
                if not unfinished:
                    plan.close()
            yield event


def _begin(
    plan: ExitStack, client: SparkConnectClient, run: PipelineCommand.StartRun
) -> set[str]:
    """Plan all reads of the flows of a run; return the flows that read a topic.

    Never fails: the run works without a plan, and itself reports a flow's errors.
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
    _log.info("planned scans by flow: %s; streams: %s", scans, streams)
    if scans or streams:
        consumers = tuple(chain(*scans.values())), tuple(chain(*streams.values()))
        plan.enter_context(planned([spark], *consumers))
    return {*scans, *streams}


def _scans_of(
    context: SparkContext, client: SparkConnectClient, run: PipelineCommand.StartRun
) -> tuple[SparkSession, _Scans, _Scans]:
    """Return the server's session, the batch scans and the streams, both by flow."""
    jvm: Any = context._jvm
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    holder = service.getOrCreateIsolatedSession(
        client._user_id or "", client._session_id, jvm.scala.Option.empty()
    )
    spark = SparkSession(context, holder.session())
    graphs = holder.dataflowGraphRegistry()
    defined = graphs.getDataflowGraphOrThrow(run.dataflow_graph_id).toDataflowGraph()
    with active(spark):
        graph = _resolved(defined, spark)
        if not graph.resolved():  # the run reports the error before any flow begins
            return spark, {}, {}
        frames = {
            flow.identifier().unquotedString(): DataFrame(flow.df(), spark)
            for flow in elements(graph.materializedFlows())
            if is_refreshed(flow.destinationIdentifier().unquotedString(), run)
        }
        scans_by_flow = {
            flow: list(found.consumers)
            for flow, found in zip(frames, scans_of(frames.values()), strict=True)
            if found.consumers
        }
        streams = {flow for flow in scans_by_flow if frames[flow].isStreaming}
    batches = {
        flow: scans for flow, scans in scans_by_flow.items() if flow not in streams
    }
    return spark, batches, {flow: scans_by_flow[flow] for flow in streams}


def _resolved(graph: JavaObject, spark: SparkSession) -> JavaObject:
    """Return a graph with its flows resolved.

    From Spark 4.3 on, the caller says whether names are case-sensitive.
    """
    if has_spark("4.3"):
        return graph.resolve(spark.conf.get("spark.sql.caseSensitive") == "true")
    return graph.resolve()


def is_refreshed(destination: str, run: PipelineCommand.StartRun) -> bool:
    """Return whether a run refreshes a dataset, which it may name without the schema.

    If another schema has a dataset of the same name, that is planned as well.
    """
    names = [*run.full_refresh_selection, *run.refresh_selection]
    wanted = tuple(f".{name.replace('`', '')}".lower() for name in names)
    return not names or f".{destination}".lower().endswith(wanted)
