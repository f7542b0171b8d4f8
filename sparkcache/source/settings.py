"""What a task reads from its Spark context, and what becomes of losses."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.model import ReadToken
from sparkcache.node.task_settings import (
    PROPERTIES,
    TaskSettings,
    decode_plans,
    encode_plans,
)
from sparkcache.reported_loss import ReportedLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import TaskContext

    from sparkcache.config import CacheConfig
    from sparkcache.demand import Consumer
    from sparkcache.model import Loss

__all__ = [
    "TaskSettings",
    "decode_plans",
    "encode_plans",
    "read_task_settings",
    "report",
]

_log = logging.getLogger(__name__)


def read_task_settings(
    context: TaskContext, part: int, base: CacheConfig | None
) -> TaskSettings:
    """Read the session's conf, which Spark ships with every task."""
    properties = {
        key: value
        for key in PROPERTIES
        if (value := context.getLocalProperty(key)) is not None
    }
    token = ReadToken(context.stageId(), context.partitionId(), part)
    return TaskSettings.of(properties, token, base)


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
