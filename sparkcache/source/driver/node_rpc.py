"""Requests from the driver to the nodes, sent by a small Spark job.

The driver has no other channel to a node; a task runs on the node's own machine.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

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

    from pyspark.sql import SparkSession

    from sparkcache.metrics import Metrics, TopicMetrics
    from sparkcache.model import Position
    from sparkcache.node.messages import Message

_TIMEOUT_S = 10.0
_TASKS_PER_CORE = 2
_DESCRIPTION = "spark.job.description"

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
    tasks = context.defaultParallelism * _TASKS_PER_CORE

    def exchange(_: Iterable[int]) -> Iterator[tuple[str, ToTask]]:
        return _exchange(request, notices)

    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, "sparkcache: request to the nodes")
    try:
        replies = context.parallelize(range(tasks), tasks).mapPartitions(exchange)
        return list(dict(replies.collect()).items())
    finally:
        context.setLocalProperty(_DESCRIPTION, cast("str", before))  # None unsets it


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
