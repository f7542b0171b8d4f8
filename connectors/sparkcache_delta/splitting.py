"""Splits an extent of a Parquet file into raw runs of rows.

A row group stores its columns one after another, so none of its rows is complete before
nearly all of its bytes have arrived. Arrow then reads the fetched ranges as it would
read the file. A raw run is an Arrow IPC stream: a row group can only be read from its
beginning, so skipping a run means decoding it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcache.connector import RawRun
from sparkcache.model import Loss
from sparkcache_delta import stored_bytes
from sparkcache_delta.fetched_file import FetchedFile
from sparkcache_delta.file_schema import FileSchema
from sparkcache_delta.footer_types import with_fixed_bytes, without_arrow_schema
from sparkcache_delta.footers import parsed
from sparkcache_delta.schema_projection import find_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkcache.connector import ByteStream
    from sparkcache.model import Extent, Ledger, Run

NO_OFFSET = -1
"""`RawRun.offset` of a run that can only be loaded with its whole extent."""

_MOST_ROWS = 64 << 10
_SMALLER = 16


def split(
    ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
) -> Iterator[RawRun]:
    """Yield each run; see `Connector.split`. Runs that Arrow cannot read are losses."""
    file = FetchedFile.fetch(ledger.object.size_bytes, extent, stream)
    delivered = 0
    try:
        longest = max(run.last - run.first + 1 for run in runs)
        rows = _Rows(file, ledger, extent, min(longest, _MOST_ROWS))
        rows.take(runs[0].first - extent.first)
        for run in runs:
            data = _serialized(rows.take(run.last - run.first + 1), rows.schema)
            yield RawRun(run, NO_OFFSET, data)
            delivered += 1
    except (pa.ArrowException, OSError, StopIteration) as error:
        for run in runs[delivered:]:
            yield RawRun(run, NO_OFFSET, b"", (_loss(ledger, extent, run, error),))


class _Rows:
    """The rows of an extent, with those columns of the file that the table has."""

    def __init__(
        self, file: FetchedFile, ledger: Ledger, extent: Extent, step: int
    ) -> None:
        self._step = step
        file_schema = FileSchema.parse(ledger.decoding)
        footer = without_arrow_schema(file.footer())
        self._file = _opened(file, footer)
        stored = self._file.schema_arrow
        indexes = [
            find_field(field, stored, by_id=file_schema.by_id)
            for field in file_schema.columns
            if field.name not in (file_schema.values or {})  # not fetched
        ]
        kept = [stored.field(index) for index in indexes if index is not None]
        self.schema = pa.schema(kept)
        self._has_bytes = False
        self._file = self._with_bytes(file, footer)
        self._groups = _row_groups(self._file.metadata, extent)
        self._batches = self._read()
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> list[pa.RecordBatch]:
        """Return the next `rows` rows. Raises pa.ArrowException, OSError."""
        taken = []
        while rows > 0:
            batch = next(self._batches) if self._rest is None else self._rest
            taken.append(batch.slice(0, rows))
            self._rest = batch.slice(rows) if rows < batch.num_rows else None
            rows -= taken[-1].num_rows
        return taken

    def _read(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in steps that Arrow can read."""
        done = 0
        try:
            for batch in self._in_steps(self._step, self._groups):
                yield batch
                done += batch.num_rows
        except pa.ArrowNotImplementedError:
            yield from self._read_by_group(done)

    def _read_by_group(self, done: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows after `done` rows, each row group by itself.

        Arrow cannot read a step of nested rows if their texts or bytes exceed 2 GiB, or
        if it meets a dictionary of another row group on the way.
        """
        for group in self._groups:
            rows = self._file.metadata.row_group(group).num_rows
            step = self._step
            while done < rows:
                try:
                    for batch in _after(done, self._in_steps(step, [group])):
                        yield batch
                        done += batch.num_rows
                except pa.ArrowNotImplementedError:
                    if step == 1:
                        raise
                    step = max(1, step // _SMALLER)
                else:
                    break
            done = max(0, done - rows)

    def _in_steps(self, rows: int, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        names = self.schema.names
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
            rows, groups, names, use_threads=False
        )
        return map(self._converted, batches) if self._has_bytes else batches

    def _with_bytes(self, file: FetchedFile, footer: bytes) -> pq.ParquetFile:
        """Open the file so that columns which Arrow would misread come as bytes."""
        names = frozenset(self.schema.names)
        lengths = stored_bytes.lengths(self._file.metadata, names)
        if not lengths:
            return self._file
        self._has_bytes = True
        return _opened(file, with_fixed_bytes(footer, tuple(lengths.items())))

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            stored_bytes.converted(batch.column(field.name), field.type, field.name)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _opened(file: FetchedFile, footer: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(
        pa.PythonFile(file, "r"),
        metadata=parsed(footer),
        coerce_int96_timestamp_unit="us",
        pre_buffer=False,  # it is in memory
    )


def _after(rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what follows a number of rows."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(0, rows - batch.num_rows)


def _row_groups(metadata: pq.FileMetaData, extent: Extent) -> list[int]:
    """Return the row groups of an extent. Raises pa.ArrowInvalid if it cuts one."""
    first, groups = 0, []
    starts = {extent.first, extent.last + 1}
    for group in range(metadata.num_row_groups):
        starts.discard(first)
        if extent.first <= first <= extent.last:
            groups.append(group)
        first += metadata.row_group(group).num_rows
    if starts - {first}:
        raise pa.ArrowInvalid(
            f"the file has {first} rows, in row groups that do not begin and end as "
            "planned"
        )
    return groups


def _serialized(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _loss(ledger: Ledger, extent: Extent, run: Run, error: Exception) -> Loss:
    expected, found = f"rows {run.first} to {run.last}", str(error)
    uri, offset = ledger.object.uri, extent.offset
    rows = run.last - run.first + 1
    deleted = FileSchema.parse(ledger.decoding).deleted_rows(run.first, rows)
    if deleted is not None:
        rows -= int(deleted.sum())
    return Loss(uri, offset, ledger.id, run.first, run.last, expected, found, rows)
