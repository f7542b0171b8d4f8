"""What a task is told by Spark: settings, plans, and who it is."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from sparkcache.config import PLANS_CONF, CacheConfig
from sparkcache.demand import Plan
from sparkcache.errors import SourceError
from sparkcache.model import Loss, ReadToken

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
    """Who a task is and what holds for it.

    Attributes:
        token: As whom it reads.
        epoch: Grows with every stage of the application; -1, older than any, in a
            job that comes without the session's conf, such as `df.rdd.count()`.
        config: The settings in force, options of the scan apart.
        plans: The plans under way.
        run: The run of the streaming query that it belongs to; empty if to none.
        query: That query, whatever its run.

    """

    token: ReadToken
    epoch: int
    config: CacheConfig
    plans: tuple[Plan, ...]
    run: str = ""
    query: str = ""

    def plans_of(self, stream: Plan | None) -> tuple[Plan, ...]:
        """Return the plans that a task reads under.

        Of a stream that is its own: its query has kept the session's conf of when it
        was started, and what it reads is none of the reads that were planned then.
        """
        if stream is None:
            return self.plans
        return (replace(stream, id=f"{self.run}/{self.query}/{stream.id}"),)


def of_task(context: TaskContext, part: int, base: CacheConfig | None) -> TaskSettings:
    """Read the session's conf, which every task carries along."""
    properties = {
        key: value
        for key in CacheConfig().to_conf()
        if (value := context.getLocalProperty(key)) is not None
    }
    stage = context.stageId()
    has_conf = context.getLocalProperty(_EXECUTION_ID) is not None
    return TaskSettings(
        ReadToken(stage, context.partitionId(), part),
        stage if has_conf else -1,  # a node keeps the settings that it has
        CacheConfig.resolve(conf=properties, base=base),
        decode_plans(context.getLocalProperty(PLANS_CONF)),
        context.getLocalProperty(_JOB_GROUP) or "",
        context.getLocalProperty(_QUERY_ID) or "",
    )


def encode_plans(plans: tuple[Plan, ...]) -> str:
    """Write plans as a conf."""
    return msgspec.json.encode(plans).decode()


def decode_plans(text: str | None) -> tuple[Plan, ...]:
    """Read plans from a conf."""
    return msgspec.json.decode(text, type=tuple[Plan, ...]) if text else ()


def report(losses: Iterable[Loss], consumer: Consumer, *, fail: bool) -> None:
    """Raise SourceError for the first loss that concerns a consumer, or log all."""
    for loss in losses:
        if not _concerns(loss, consumer):
            continue
        if fail:
            raise SourceError(
                loss.uri,
                offset=loss.offset,
                expected=loss.expected,
                found=f"{loss.found} (entries {loss.ledger}:{loss.first}-{loss.last}; "
                "failOnDataLoss=false reads on without them)",
            )
        _log.warning("%s", loss)


def _concerns(loss: Loss, scan: Consumer) -> bool:
    if scan.start and (loss.ledger, loss.last) < (scan.start.ledger, scan.start.entry):
        return False
    return not scan.end or (loss.ledger, loss.first) < (scan.end.ledger, scan.end.entry)
