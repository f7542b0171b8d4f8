"""Speaking to the nodes from the driver, by way of a small Spark job.

There is no other channel: tasks reach the executors wherever they are.
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
    EndPlans,
    GetMetrics,
    GetStatus,
    GetTopicMetrics,
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
    """Tell the nodes that plans are over. One that is not reached finds out later.

    Never fails: what was planned has been done, and must not be lost for this.
    """
    _tell(spark, EndPlans(ids))


def report_query_progress(
    spark: SparkSession, query: str, topics: dict[str, Position]
) -> None:
    """Tell the nodes how far a streaming query has read topics. Never fails."""
    _tell(spark, QueryProgress(query, topics))


def _tell(spark: SparkSession, message: Message) -> None:
    try:
        _on_executors(spark, GetMetrics(), (message,))
    except (Py4JError, PySparkException) as error:
        reason = str(error).partition("\n\tat ")[0]
        _log.warning("nodes were not told %s: %s", message, reason)


def node_metrics(spark: SparkSession) -> dict[str, Metrics]:
    """Return what each node has counted, by the node's directory."""
    return {
        name: answer.metrics
        for name, answer in _on_executors(spark, GetMetrics())
        if isinstance(answer, MetricsReply)
    }


def topic_metrics(spark: SparkSession) -> list[TopicMetrics]:
    """Return what the nodes have counted of each topic, node after node."""
    return [
        topic
        for _, answer in _on_executors(spark, GetTopicMetrics())
        if isinstance(answer, TopicMetricsReply)
        for topic in answer.topics
    ]


def node_statuses(spark: SparkSession) -> list[tuple[str, bytes]]:
    """Return all that each node tells of itself, as JSON, by the node's directory."""
    return [
        (name, answer.json)
        for name, answer in _on_executors(spark, GetStatus())
        if isinstance(answer, StatusReply)
    ]


def _on_executors(
    spark: SparkSession, question: Message, told: tuple[Message, ...] = ()
) -> list[tuple[str, ToTask]]:
    """Ask every node, once; those that are not reached do not answer."""
    context = spark.sparkContext
    tasks = context.defaultParallelism * _TASKS_PER_CORE

    def speak(_: Iterable[int]) -> Iterator[tuple[str, ToTask]]:
        return _speak(question, told)

    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, "sparkcache: speak to the nodes")
    try:
        answers = context.parallelize(range(tasks), tasks).mapPartitions(speak)
        return list(dict(answers.collect()).items())
    finally:
        context.setLocalProperty(_DESCRIPTION, cast("str", before))  # None unsets it


def _speak(
    question: Message, told: tuple[Message, ...]
) -> Iterator[tuple[str, ToTask]]:
    """Speak to this executor's node, if it has one; in a task."""
    try:
        address = Address.of_this_executor()
        channel: Channel[ToTask] = Channel(address.connect(_TIMEOUT_S), ToTask)
    except (CacheUnavailable, OSError):
        return
    try:
        for message in told:
            channel.send(message)
        channel.send(question)
        answer, _ = channel.receive()
    except CacheUnavailable:
        return
    finally:
        channel.close()
    yield str(address.directory), answer
