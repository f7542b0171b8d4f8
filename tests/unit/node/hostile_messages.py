"""Messages that are valid by themselves, to be sent in any order, or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.demand import Consumer, Plan, ReaderIdentity
from sparkcache.fetch import RunSlice, Scan
from sparkcache.metrics import Metrics
from sparkcache.model import Loss, Position, ReadToken, Slot
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    Clear,
    Decoded,
    Ended,
    EndPlans,
    Finish,
    GetLosses,
    GetMetrics,
    GetStatus,
    GetTopicMetrics,
    Grant,
    KeepAlive,
    MetricsReply,
    Open,
    QueryProgress,
    Refused,
    ReportLosses,
    Served,
    Take,
)
from sparkcache.node.packed_open import packed
from sparkcache.reported_loss import ReportedLoss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.config import CacheConfig
    from sparkcache.node.messages import Message

FROM_NODE: list[Message] = [
    *(KeepAlive(), Refused("no"), MetricsReply(Metrics()), Served(4096)),
    *(Grant(Slot(4096)), Decoded(0, 4096, 0), Ended(1, 1, 1)),
]


def from_task(
    slices: Sequence[RunSlice], config: CacheConfig, root: str = "memory://bucket"
) -> list[list[Message]]:
    """What tasks say that read these slices: each in an order that is right."""
    scan = Scan(root, config.storage, config.scan, tuple(slices))
    topic = slices[0].ledger.topic
    consumer = Consumer(topic)
    plans = [Plan("hostile", (consumer,)), Plan("run/q/stream", (consumer,), batch=3)]
    loss = Loss("s3://bucket/key", 4096, 7, 3, 5, "a frame", "zeros")
    before: list[Message] = [
        *(GetMetrics(), GetTopicMetrics(), GetLosses(), Clear(topic)),
        QueryProgress("q", {topic: Position(0, 5)}),
        EndPlans(("hostile", "none")),
        ReportLosses((ReportedLoss(topic, loss, 0.0),), 3),
    ]
    runs = [
        (at, index)
        for at, part in enumerate(slices)
        for index in range(part.start, part.stop)
    ]
    takes = [
        Take(*run, read=tuple(runs[max(number - 1, 0) : number]))
        for number, run in enumerate(runs)
    ]
    after = [Finish((runs[-1],), tuple(runs)), GetStatus(), Clear()]
    openings = [
        Open(
            PROTOCOL_VERSION,
            scan,
            ReaderIdentity(ReadToken(stage, 0, 0), "scan", consumer, 1.0),
            0,
            config.node,
            of_stage,
            tuple(enumerate(slices, 1)),
        )
        for stage, of_stage in enumerate([(), (plans[0],), (plans[1],)], 1000)
    ]
    return [
        [*beginning, packed(opening), *takes, *after]
        for opening in openings
        for beginning in ([], before)
    ]
