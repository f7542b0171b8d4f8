"""Plan of what a stream has still to read, which its tasks report to the nodes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.demand import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.demand import Consumer


_STEP = 2  # the number between two is for a node informed that the batch is done


@dataclass
class StreamPlan:
    """Plans of one stream, batch after batch.

    A query that joins a stream with itself cuts each batch once for each of its scans.
    Their number shows while the first batch is planned: before any of it is read, but
    after tasks of the first scan were given a plan for one scan.
    """

    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _batch: object = None
    _number: int = 0
    _cut: int = 0
    _scans: int = 1

    def next(self, batch: object, consumers: Sequence[Consumer]) -> Plan:
        """Return the plan for one scan of a batch, with what is unread from it on."""
        is_new = batch != self._batch
        self._batch = batch
        self._cut = 1 if is_new else self._cut + 1
        if is_new or self._cut > self._scans:
            self._number += _STEP
        self._scans = max(self._scans, self._cut)
        return Plan(self._id, tuple(consumers) * self._scans, self._number)
