"""Rows of a data file become rows of its table.

columns     under the table's names, of the table's types      conforming.py
constants   what the whole file has: its partition             here
rows        but for those that a deletion vector takes out     here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.errors import SourceError
from sparkcache_delta import rebase
from sparkcache_delta.file_schema import Form
from sparkcache_delta.schema_projection import conform, find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger


def decode(ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
    """Decode a run.

    Raises SourceError if the file's types are none of the table's, or its days are of
    another calendar.
    """
    if raw.losses:
        return DecodedRun([], raw.losses)
    form = Form.parse(ledger.decoding)
    batches: list[pa.RecordBatch] = []
    first = raw.run.first
    try:
        for stored in pa.ipc.open_stream(pa.py_buffer(raw.data)):
            batch = _rows(stored, form)
            deleted = form.deleted_rows(first, stored.num_rows)
            if deleted is not None:
                batch = batch.filter(pa.array(~deleted))
            _require_calendar(ledger, form, batch)
            batches += _pieces(batch, batch_bytes)
            first += stored.num_rows
    except pa.ArrowException as error:
        raise SourceError(
            ledger.object.uri, expected="columns of the table's types", found=str(error)
        ) from error
    return DecodedRun(batches)


def _require_calendar(ledger: Ledger, form: Form, batch: pa.RecordBatch) -> None:
    """Raise SourceError for days and times that mean others in today's calendar."""
    if not form.is_old:
        return
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name not in (form.values or {}) and rebase.has_old(column):
            raise SourceError(
                ledger.object.uri,
                expected=f"in column {name} days since 1582-10-15 and times since "
                "1900-01-01",
                found="earlier ones, in the calendar of Spark before version 3, which "
                "are not translated: leave the column out, or have Spark write the "
                "rows anew",
            )


def _rows(stored: pa.RecordBatch, form: Form) -> pa.RecordBatch:
    """Return rows with the table's columns. Raises pa.ArrowException."""
    schema = form.plain_schema()
    columns = [
        _column(stored, form, field, plain.type)
        for field, plain in zip(form.schema, schema, strict=True)
    ]
    if not columns:
        return stored
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(
    stored: pa.RecordBatch, form: Form, field: pa.Field, plain: pa.DataType
) -> pa.Array:
    values = form.values or {}
    if field.name in values:
        return constant(values[field.name], plain, stored.num_rows)
    index = find(field, stored.schema, by_id=form.by_id)
    if index is None:
        return pa.nulls(stored.num_rows, plain)
    return conform(stored.column(index), field, by_id=form.by_id)


def constant(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of one value, given as a text; of bytes, by their digits."""
    if text is None:
        return pa.nulls(rows, kind)
    if pa.types.is_binary(kind):
        value = pa.array([bytes.fromhex(text)], kind)
    else:
        value = pa.array([text], pa.string()).cast(kind)
    return value.take(pa.array(np.zeros(rows, np.int64)))


def _pieces(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into some of about as many bytes; none if it has no rows."""
    pieces = max(1, round(batch.nbytes / max(1, batch_bytes)))
    rows = max(1, -(-batch.num_rows // pieces))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
