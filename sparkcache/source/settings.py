"""Settings, plans and identity that a task reads from its Spark context."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from sparkcache.config import DECIDES_CONF, PLANS_CONF, CacheConfig
from sparkcache.demand import Plan
from sparkcache.errors import SourceError
from sparkcache.model import Loss, ReadToken
from sparkcache.reported_loss import ReportedLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import TaskContext

    from sparkcache.demand import Consumer

_JOB_GROUP = "spark.jobGroup.id"  # the run's id, if a query has set it
_QUERY_ID = "sql.streaming.queryId"
_EXECUTION_ID = "spark.sql.execution.id"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Identity of a task, and the settings and plans in force for it.

    Attributes:
        token: Identity of the planned read.
        epoch: Grows with every stage of the application; -1, older than any, in a
            job without the session's conf, such as `df.rdd.count()`.
        config: The settings in force, without the options of the scan.
        plans: The active plans.
        run: Run id of the task's streaming query; empty if it has none.
        query: Id of that query, the same in all its runs.
        authority: How much its settings count for the node: 2 in the session that was
            installed first, 1 in a streaming query of it, which has the session's
            settings of when it was started, and 0 elsewhere.

    """

    token: ReadToken
    epoch: int
    config: CacheConfig
    plans: tuple[Plan, ...]
    run: str = ""
    query: str = ""
    authority: int = 0

    def plans_of(self, stream: Plan | None) -> tuple[Plan, ...]:
        """Return the plans that a task reads under.

        A stream has only its own plan: its query keeps the session's conf from when it
        was started, and its reads are not among those planned at that time.
        """
        if stream is None:
            return self.plans
        return (replace(stream, id=f"{self.run}/{self.query}/{stream.id}"),)


def read_task_settings(
    context: TaskContext, part: int, base: CacheConfig | None
) -> TaskSettings:
    """Read the session's conf, which Spark ships with every task."""
    properties = {
        key: value
        for key in CacheConfig().to_conf()
        if (value := context.getLocalProperty(key)) is not None
    }
    stage = context.stageId()
    has_conf = context.getLocalProperty(_EXECUTION_ID) is not None
    query = context.getLocalProperty(_QUERY_ID) or ""
    return TaskSettings(
        ReadToken(stage, context.partitionId(), part),
        stage if has_conf else -1,  # the node keeps its settings
        CacheConfig.resolve(conf=properties, base=base),
        decode_plans(context.getLocalProperty(PLANS_CONF)),
        context.getLocalProperty(_JOB_GROUP) or "",
        query,
        _authority(context, is_stream=bool(query)),
    )


def _authority(context: TaskContext, *, is_stream: bool) -> int:
    if context.getLocalProperty(DECIDES_CONF) != "true":
        return 0
    return 1 if is_stream else 2


def encode_plans(plans: tuple[Plan, ...]) -> str:
    """Encode plans as the value of a conf."""
    return msgspec.json.encode(plans).decode()


def decode_plans(text: str | None) -> tuple[Plan, ...]:
    """Decode plans from the value of a conf."""
    return msgspec.json.decode(text, type=tuple[Plan, ...]) if text else ()


def report(
    losses: Iterable[Loss], consumer: Consumer, *, fail: bool
) -> list[ReportedLoss]:
    """Return the consumer's losses and log them, or raise SourceError for the first."""
    reported = []
    for loss in losses:
        if not _concerns(loss, consumer):
            continue
        if fail:
            raise SourceError(
                loss.uri,
                offset=loss.offset,
                expected=loss.expected,
                found=f"{loss.found} ({loss.entries}; failOnDataLoss=false skips them)",
            )
        _log.warning("%s", loss)
        reported.append(ReportedLoss(consumer.topic, loss, time.time()))
    return reported


def _concerns(loss: Loss, scan: Consumer) -> bool:
    if scan.start and (loss.ledger, loss.last) < (scan.start.ledger, scan.start.entry):
        return False
    return not scan.end or (loss.ledger, loss.first) < (scan.end.ledger, scan.end.entry)
