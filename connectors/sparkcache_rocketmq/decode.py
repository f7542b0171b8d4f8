"""Decode a raw run to record batches.

    raw run     -> records     complete records of this run only         records.py
    bodies      -> bodies      compared with their CRC                   bodies.py
    records     -> records     without fields that no broker writes      checks.py
    bodies      -> messages    decompressed, and inner batches unfolded  bodies.py
    properties  -> positions   of the names and the values               properties.py
    positions   -> columns     copied together by Arrow                  columns.py

A record with a fault is dropped and reported as a loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.connector import DecodedRun
from sparkcache.model import Loss
from sparkcache_rocketmq import columns, queues
from sparkcache_rocketmq.bodies import Faults, messages, verify
from sparkcache_rocketmq.checks import check_fields, check_properties
from sparkcache_rocketmq.records import are_starts, chain, read
from sparkcache_rocketmq.splitting import CutRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sparkcache.arrays import Bytes, Ints
    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger, Run
    from sparkcache_rocketmq.records import Records


def decode(ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
    """Decode a run; add the losses found here to those of the raw run."""
    buffer = np.frombuffer(raw.data, np.uint8)
    starts = _starts(raw, buffer)
    if not len(starts):
        return DecodedRun([], raw.losses)
    records = read(buffer, starts)
    taken, faults = records.offsets_taken(), Faults()
    verify(records, faults)
    check_fields(records, faults)
    decoded = messages(records, taken, faults)
    if check_properties(records, decoded.lane, decoded.properties, faults):
        decoded = messages(records, taken, faults)
    batches: list[pa.RecordBatch] = []
    if len(decoded.lane):
        ends = np.searchsorted(decoded.offset, (raw.run.first, raw.run.last + 1))
        batch = columns.batch(queues.queue(ledger), records, decoded)
        batch = batch.slice(ends[0], ends[1] - ends[0])
        batches += _pieces(batch, round(batch.nbytes / max(1, batch_bytes)))
    losses = [
        _loss(ledger, raw.run, records, lane, int(taken[lane]), fault)
        for lane, fault in sorted(faults.by_lane.items())
    ]
    return DecodedRun(batches, raw.losses + tuple(_joined(losses)))


def _starts(raw: RawRun, buffer: Bytes) -> Ints:
    """Return the starts of records: those that are known, if they are those of data."""
    if isinstance(raw, CutRun) and are_starts(buffer, raw.starts):
        return raw.starts
    return np.array(chain(raw.data, 0, len(raw.data)), np.int64)


def _loss(
    ledger: Ledger,
    run: Run,
    records: Records,
    lane: int,
    taken: int,
    fault: tuple[str, str],
) -> Loss:
    """Return the loss of a record's offsets in this run, at the record's own offset."""
    log_offset = int(records.int64(records.start[lane : lane + 1] + 28)[0])
    offset = log_offset - queues.base(ledger)
    first = int(records.queue_offset[lane])
    last = min(first + taken - 1, run.last)
    return Loss(
        ledger.object.uri, offset, ledger.id, max(first, run.first), last, *fault
    ).of_rows()


def _joined(losses: list[Loss]) -> Iterator[Loss]:
    """Merge adjacent losses that have the same reason."""
    before: Loss | None = None
    for loss in losses:
        if before is not None and _continues(before, loss):
            before = replace(before, last=loss.last).of_rows()
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
    """Cut a batch into about `pieces` batches with the same number of rows."""
    rows = max(1, -(-len(batch) // max(1, pieces)))
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)
