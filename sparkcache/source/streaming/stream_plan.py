"""What a stream has still to read, as its tasks tell it to the nodes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.demand import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.demand import Consumer


_STEP = 2  # leaves room for a node that is told that the batch is done


@dataclass
class StreamPlan:
    """Of one stream, batch after batch.

    Where a query joins a stream with itself, it cuts each batch as often as it scans
    it. How often that is shows while the first batch is planned: before any of it is
    read, but after tasks of the first scan were told of one.
    """

    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _batch: object = None
    _number: int = 0
    _cut: int = 0
    _scans: int = 1

    def next(self, batch: object, consumers: Sequence[Consumer]) -> Plan:
        """Return it for a scan of a batch, from which on these are to be read."""
        is_new = batch != self._batch
        self._batch = batch
        self._cut = 1 if is_new else self._cut + 1
        if is_new or self._cut > self._scans:
            self._number += _STEP
        self._scans = max(self._scans, self._cut)
        return Plan(self._id, tuple(consumers) * self._scans, self._number)
