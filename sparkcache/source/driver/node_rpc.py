"""Requests from the driver to the nodes, sent by a small Spark job.

The driver has no other channel to a node; a task runs on the node's own machine.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer

from sparkcache.errors import CacheUnavailable
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.messages import (
    Clear,
    EndPlans,
    GetLosses,
    GetMetrics,
    GetStatus,
    GetTopicMetrics,
    LossesReply,
    MetricsReply,
    QueryProgress,
    StatusReply,
    TopicMetricsReply,
    ToTask,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from sparkcache.metrics import Metrics, TopicMetrics
    from sparkcache.model import Position
    from sparkcache.node.messages import Message

_TIMEOUT_S = 10.0
_TASKS_PER_CORE = 2
_DESCRIPTION = "spark.job.description"
_PEER = re.compile(r"BlockManagerId\(([^,]*), ([^,]*), ")

_log = logging.getLogger(__name__)


def end_plans(spark: SparkSession, ids: tuple[str, ...]) -> None:
    """Report the end of plans to the nodes. A node that is not reached learns it later.

    Never fails: the planned work is done, and its result must not be lost.
    """
    _notify(spark, EndPlans(ids))


def report_query_progress(
    spark: SparkSession, query: str, topics: dict[str, Position]
) -> None:
    """Report to the nodes how far a streaming query has read. Never fails."""
    _notify(spark, QueryProgress(query, topics))


def _notify(spark: SparkSession, message: Message) -> None:
    try:
        _on_executors(spark, GetMetrics(), (message,))
    except (Py4JError, PySparkException) as error:
        reason = str(error).partition("\n\tat ")[0]
        _log.warning("nodes did not receive %s: %s", message, reason)


def clear_nodes(spark: SparkSession, topic: str | None) -> None:
    """Have all nodes evict the runs of a topic, or all runs."""
    _on_executors(spark, GetMetrics(), (Clear(topic),))


def node_metrics(spark: SparkSession) -> dict[str, Metrics]:
    """Return the metrics of each node, by the node's directory."""
    return {
        name: reply.metrics
        for name, reply in _on_executors(spark, GetMetrics())
        if isinstance(reply, MetricsReply)
    }


def topic_metrics(spark: SparkSession) -> list[TopicMetrics]:
    """Return the nodes' metrics of each topic, node after node."""
    return [
        topic
        for _, reply in _on_executors(spark, GetTopicMetrics())
        if isinstance(reply, TopicMetricsReply)
        for topic in reply.topics
    ]


def node_losses(spark: SparkSession) -> list[LossesReply]:
    """Return the losses that were reported to each node."""
    return [
        reply
        for _, reply in _on_executors(spark, GetLosses())
        if isinstance(reply, LossesReply)
    ]


def node_statuses(spark: SparkSession) -> list[tuple[str, bytes]]:
    """Return the status of each node, as JSON, with the node's directory."""
    return [
        (name, reply.json)
        for name, reply in _on_executors(spark, GetStatus())
        if isinstance(reply, StatusReply)
    ]


def _on_executors(
    spark: SparkSession, request: Message, notices: tuple[Message, ...] = ()
) -> list[tuple[str, ToTask]]:
    """Send notices and a request to every node; return the replies of those reached."""
    context = spark.sparkContext

    def exchange(_: Iterable[int]) -> Iterator[tuple[str, ToTask]]:
        return _exchange(request, notices)

    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, "sparkcache: request to the nodes")
    try:
        replies = _task_on_each_executor(context).mapPartitions(exchange)
        return list(dict(replies.collect()).items())
    finally:
        context.setLocalProperty(_DESCRIPTION, cast("str", before))  # None unsets it


def _task_on_each_executor(context: SparkContext) -> RDD[Any]:
    """Return an RDD with a partition for each executor, which prefers it.

    Where the driver itself runs the tasks, several may be under way at a time.
    """
    jvm: Any = context._jvm
    as_seq = jvm.PythonUtils.toSeq
    blocks = jvm.org.apache.spark.SparkEnv.get().blockManager()
    peers = blocks.master().getPeers(blocks.blockManagerId())
    found = _PEER.findall(str(peers.mkString("\n")))
    locations = [f"executor_{host}_{executor}" for executor, host in found]
    if not locations:
        tasks = context.defaultParallelism * _TASKS_PER_CORE
        return context.parallelize(range(tasks), tasks)
    partitions = jvm.java.util.ArrayList()
    for location in locations:
        preferred = jvm.java.util.List.of(location)
        partitions.add(jvm.scala.Tuple2(b"", as_seq(preferred)))
    of_bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    made = context._jsc.sc().makeRDD(as_seq(partitions), of_bytes)
    return RDD(made.toJavaRDD(), context, NoOpSerializer())


def _exchange(
    request: Message, notices: tuple[Message, ...]
) -> Iterator[tuple[str, ToTask]]:
    """Yield the reply of this executor's node, if it has one. Runs in a task."""
    try:
        address = Address.of_this_executor()
        channel: Channel[ToTask] = Channel(address.connect(_TIMEOUT_S), ToTask)
    except (CacheUnavailable, OSError):
        return
    try:
        for notice in notices:
            channel.send(notice)
        channel.send(request)
        reply, _ = channel.receive()
    except CacheUnavailable:
        return
    finally:
        channel.close()
    yield str(address.directory), reply
