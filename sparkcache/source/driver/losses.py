"""`sparkcache.losses(spark)`: what queries have left out, as a DataFrame."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkcache.model import UNKNOWN_END, topic_and_root
from sparkcache.reported_loss import MAX_LOSSES
from sparkcache.source.driver.node_rpc import node_losses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.reported_loss import ReportedLoss

_SCHEMA = """
    topic string not null, root string not null, object string not null,
    ledger bigint, first bigint, last bigint, rows bigint,
    reason string not null, time timestamp not null
"""

_log = logging.getLogger(__name__)


def losses(spark: SparkSession) -> DataFrame:
    """Return what queries left out because of `failOnDataLoss=false`, one row a range.

    A range is listed once, however many queries and tasks have left it out. Nodes keep
    the first thousand each, as long as they run. A query that reads without the cache
    logs its losses, and they are not listed here.

    | column | type | what it is |
    |---|---|---|
    | `topic` | string | the topic's full name |
    | `root` | string | the path that was loaded |
    | `object` | string | the object that stores the entries, or should |
    | `ledger` | bigint | the ledger's id; null if it is not known |
    | `first`, `last` | bigint | the lost entries, inclusive; `last` is null if the \
length of the ledger is not known, and both are if the ledger is not |
    | `rows` | bigint | how many rows are lost; null if that is not known |
    | `reason` | string | what should be stored there, and what is |
    | `time` | timestamp | when a task or a query's planning first left it out |

    Args:
        spark: The session; a small job polls its executors.

    """
    found: dict[object, ReportedLoss] = {}
    not_kept = 0
    for reply in node_losses(spark):
        not_kept += reply.not_kept
        for reported in reply.losses:
            key = reported.topic, reported.loss
            found[key] = min(found.get(key, reported), reported, key=_time)
    if not_kept:
        _log.warning(
            "%d reports of losses are not listed: a node keeps %d", not_kept, MAX_LOSSES
        )
    rows = [_row(reported) for reported in sorted(found.values(), key=_time)]
    return spark.createDataFrame(rows, _SCHEMA)


def _time(reported: ReportedLoss) -> float:
    return reported.time_s


def _row(reported: ReportedLoss) -> tuple[object, ...]:
    loss = reported.loss
    topic, root = topic_and_root(reported.topic)
    has_ledger, has_end = loss.ledger >= 0, loss.last < UNKNOWN_END
    return (
        topic,
        root,
        loss.uri,
        loss.ledger if has_ledger else None,
        loss.first if has_ledger else None,
        loss.last if has_ledger and has_end else None,
        loss.rows,
        loss.reason,
        datetime.fromtimestamp(reported.time_s, UTC),
    )
