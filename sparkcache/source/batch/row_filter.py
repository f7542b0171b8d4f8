"""Selection of a scan's rows and columns from the batches of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkcache import connector as connectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.demand import Consumer
    from sparkcache.model import Position
    from sparkcache.source.options import ScanOptions


class RowFilter:
    """Filter that keeps the rows and columns of a scan.

    Runs are cached whole, so start, end and time limits apply row by row.
    """

    def __init__(
        self, scan: ScanOptions, consumer: Consumer, columns: list[str]
    ) -> None:
        connector = connectors.find(scan.connector)
        self._times_us = scan.start_us, scan.end_us
        self._columns = columns
        self._takes_all_columns = columns == connector.schema(scan.decoding).names
        self._ledger, self._entry = connector.entry_columns()
        self._start, self._end = consumer.start, consumer.end
        if not self._entry:  # no entry columns: ledgers are read whole
            self._start = self._end = None
        self._time = connector.time_column()

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the scan's rows of a batch, if it has any."""
        mask = self._mask(batch)
        if mask is not None:
            batch = batch.filter(mask)
        if batch.num_rows:
            yield batch if self._takes_all_columns else batch.select(self._columns)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array | None:
        tests = []
        if self._start is not None and not self._is_at_or_after(batch, 0, self._start):
            tests.append(pc.invert(self._before(batch, self._start)))
        if self._end is not None and self._is_at_or_after(batch, -1, self._end):
            tests.append(self._before(batch, self._end))
        for limit_us, keeps in zip(
            self._times_us, (pc.greater_equal, pc.less), strict=True
        ):
            if limit_us is not None:
                limit = pa.scalar(limit_us, pa.timestamp("us", "UTC"))
                tests.append(keeps(batch.column(self._time), limit))
        mask = None
        for test in tests:
            mask = test if mask is None else pc.and_(mask, test)
        return mask

    def _is_at_or_after(
        self, batch: pa.RecordBatch, row: int, position: Position
    ) -> bool:
        """Return whether a row is at a position or after it."""
        ledger = batch.column(self._ledger)[row].as_py()
        entry = batch.column(self._entry)[row].as_py()
        return bool((ledger, entry) >= (position.ledger, position.entry))

    def _before(self, batch: pa.RecordBatch, position: Position) -> pa.Array:
        ledger, entry = batch.column(self._ledger), batch.column(self._entry)
        return pc.or_(
            pc.less(ledger, position.ledger),
            pc.and_(pc.equal(ledger, position.ledger), pc.less(entry, position.entry)),
        )
