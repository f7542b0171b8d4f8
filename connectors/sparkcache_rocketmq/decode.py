"""A run of records becomes record batches.

    records     -> bodies      whole, of this run, and nothing between   records.py
    bodies      -> bodies      compared with their CRC                   bodies.py
    bodies      -> messages    decompressed, and inner batches unfolded  bodies.py
    properties  -> properties  as places of names and values             properties.py
    places      -> columns     copied together by Arrow                  columns.py

Whatever is wrong with a record takes that record out, and is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.connector import DecodedRun
from sparkcache.model import Loss
from sparkcache_rocketmq import columns, queues
from sparkcache_rocketmq.bodies import Faults, messages, verify
from sparkcache_rocketmq.records import chain, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger, Run
    from sparkcache_rocketmq.records import Records


def decode(ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
    """Decode a run; its losses are those of the raw run and what is found here."""
    starts = chain(raw.data, 0, len(raw.data))
    if not starts:
        return DecodedRun([], raw.losses)
    records = read(np.frombuffer(raw.data, np.uint8), np.array(starts, np.int64))
    taken, faults = records.offsets_taken(), Faults()
    verify(records, faults)
    found = messages(records, taken, faults)
    batches: list[pa.RecordBatch] = []
    if len(found.lane):
        ends = np.searchsorted(found.offset, (raw.run.first, raw.run.last + 1))
        batch = columns.batch(queues.queue(ledger), records, found)
        batch = batch.slice(ends[0], ends[1] - ends[0])
        batches += _pieces(batch, round(batch.nbytes / max(1, batch_bytes)))
    losses = [
        _loss(ledger, raw.run, records, lane, int(taken[lane]), fault)
        for lane, fault in sorted(faults.by_lane.items())
    ]
    return DecodedRun(batches, raw.losses + tuple(_joined(losses)))


def _loss(
    ledger: Ledger,
    run: Run,
    records: Records,
    lane: int,
    taken: int,
    fault: tuple[str, str],
) -> Loss:
    """Return the loss of what a run has of a record, where that says to lie."""
    place = int(records.int64(records.start[lane : lane + 1] + 28)[0])
    offset = place - queues.base(ledger)
    first = int(records.queue_offset[lane])
    last = min(first + taken - 1, run.last)
    return Loss(
        ledger.object.uri, offset, ledger.id, max(first, run.first), last, *fault
    )


def _joined(losses: list[Loss]) -> Iterator[Loss]:
    """Make one of neighbours with the same reason."""
    before: Loss | None = None
    for loss in losses:
        if before is not None and _continues(before, loss):
            before = replace(before, last=loss.last)
            continue
        if before is not None:
            yield before
        before = loss
    if before is not None:
        yield before


def _continues(before: Loss, loss: Loss) -> bool:
    reasons = (before.expected, before.found), (loss.expected, loss.found)
    return before.last + 1 == loss.first and reasons[0] == reasons[1]


def _pieces(batch: pa.RecordBatch, pieces: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into that many of about the same number of rows, or into one."""
    rows = max(1, -(-len(batch) // max(1, pieces)))
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)
