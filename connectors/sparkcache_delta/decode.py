"""Decodes runs: converts rows of a data file to rows of its table.

columns     get the table's names and types                   schema_projection.py
constants   partition values, the same for the whole file     here
rows        those that a deletion vector lists are removed    here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.errors import SourceError
from sparkcache_delta import rebase
from sparkcache_delta.file_schema import FileSchema
from sparkcache_delta.schema_projection import find_field, project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger


def decode(ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
    """Decode a run.

    Raises SourceError if the file's types do not fit the table's, or if it has dates or
    times in the legacy calendar.
    """
    if raw.losses:
        return DecodedRun([], raw.losses)
    file_schema = FileSchema.parse(ledger.decoding)
    batches: list[pa.RecordBatch] = []
    first = raw.run.first
    try:
        for stored in pa.ipc.open_stream(pa.py_buffer(raw.data)):
            batch = _rows(stored, file_schema)
            deleted = file_schema.deleted_rows(first, stored.num_rows)
            if deleted is not None:
                batch = batch.filter(pa.array(~deleted))
            _require_calendar(ledger, file_schema, batch)
            batches += _pieces(batch, batch_bytes)
            first += stored.num_rows
    except pa.ArrowException as error:
        raise SourceError(
            ledger.object.uri, expected="columns of the table's types", found=str(error)
        ) from error
    return DecodedRun(batches)


def _require_calendar(
    ledger: Ledger, file_schema: FileSchema, batch: pa.RecordBatch
) -> None:
    """Raise SourceError for dates and times that differ between the calendars."""
    if not file_schema.is_legacy:
        return
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name not in (file_schema.values or {}) and rebase.has_ambiguous(column):
            raise SourceError(
                ledger.object.uri,
                expected="days since 1582-10-15 and times since 1900-01-01 in column "
                f"{name}",
                found="earlier values in the calendar of Spark before version 3, which "
                "are not rebased: leave the column out, or rewrite the rows with Spark",
            )


def _rows(stored: pa.RecordBatch, file_schema: FileSchema) -> pa.RecordBatch:
    """Return rows with the table's columns. Raises pa.ArrowException."""
    schema = file_schema.plain_schema()
    columns = [
        _column(stored, file_schema, field, plain.type)
        for field, plain in zip(file_schema.columns, schema, strict=True)
    ]
    if not columns:
        return stored
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(
    stored: pa.RecordBatch,
    file_schema: FileSchema,
    field: pa.Field,
    plain: pa.DataType,
) -> pa.Array:
    values = file_schema.values or {}
    if field.name in values:
        return constant(values[field.name], plain, stored.num_rows)
    index = find_field(field, stored.schema, by_id=file_schema.by_id)
    if index is None:
        return pa.nulls(stored.num_rows, plain)
    return project(stored.column(index), field, by_id=file_schema.by_id)


def constant(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of one value, parsed from a text.

    Binary values are in hex, times of day in their unit since midnight.
    """
    if text is None:
        return pa.nulls(rows, kind)
    if pa.types.is_binary(kind):
        value = pa.array([bytes.fromhex(text)], kind)
    elif pa.types.is_time(kind):
        value = pa.array([int(text)]).cast(kind)
    else:
        value = pa.array([text], pa.string()).cast(kind)
    return value.take(pa.array(np.zeros(rows, np.int64)))


def _pieces(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of about `batch_bytes`; yield none if it has no rows."""
    pieces = max(1, round(batch.nbytes / max(1, batch_bytes)))
    rows = max(1, -(-batch.num_rows // pieces))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
