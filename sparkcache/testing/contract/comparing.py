"""Rules, and comparisons of rows and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.memory import encoded
from sparkcache.testing.reading import as_dicts

if TYPE_CHECKING:
    from sparkcache.connector import DecodedRun


def require(holds: bool, rule: str) -> None:
    """Raise AssertionError with a rule that does not hold."""
    if not holds:
        raise AssertionError(f"a connector's contract: {rule}")


def is_same(one: object, other: object) -> bool:
    """Return whether two values are equal, if NaN equals NaN."""
    return one == other or repr(one) == repr(other)


def are_equal(one: DecodedRun, other: DecodedRun) -> bool:
    """Return whether two runs have the same rows and losses, in whatever batches."""
    if one.losses != other.losses:
        return False
    tables = [
        pa.Table.from_batches(filter(len, run.batches), run.batches[0].schema)
        for run in (one, other)
        if any(map(len, run.batches))
    ]
    if len(tables) < 2:
        return not tables
    return tables[0].equals(tables[1]) or is_same(*map(as_dicts, tables))


def fields(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return the names and types of columns."""
    return [(column.name, column.type) for column in schema]


def through_memory(run: DecodedRun, schema: pa.Schema) -> DecodedRun:
    """Return a run as readers get it from shared memory."""
    if run.batches:
        schema = run.batches[0].schema
    sink = pa.BufferOutputStream()
    encoded.EncodedRun(run, schema).write(sink)
    return encoded.decode(sink.getvalue())
