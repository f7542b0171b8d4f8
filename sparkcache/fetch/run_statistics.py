"""Statistics of a decoded run: its rows, and the bounds of some of its columns."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.filters import Bounds, RunStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkcache.connector import Connector, DecodedRun

_MAX_TEXT = 64  # characters or bytes: the node keeps the bounds of each run


def run_statistics(
    connector: Connector, decoding: str, run: DecodedRun
) -> RunStatistics | None:
    """Return the statistics of a run; None if its rows are not those of scans.

    They are not if the run has losses, or columns for a resolver.
    """
    if not _is_plain(run, len(connector.schema(decoding))):
        return None
    rows = sum(batch.num_rows for batch in run.batches)
    if not rows:
        return RunStatistics(0, {})
    names = connector.bounded_columns(decoding)
    known = ((name, _bounds(run.batches, name)) for name in names)
    return RunStatistics(rows, {name: bounds for name, bounds in known if bounds})


def statistics_of_all(
    connector: Connector, decoding: str, runs: Sequence[DecodedRun]
) -> list[RunStatistics | None]:
    """Return the statistics of small runs, as `run_statistics` returns those of one."""
    columns = len(connector.schema(decoding))
    counts = [sum(batch.num_rows for batch in run.batches) for run in runs]
    if 0 in counts or not all(_is_plain(run, columns) for run in runs):
        return [run_statistics(connector, decoding, run) for run in runs]
    starts = [0, *accumulate(counts)][:-1]
    bounds: list[dict[str, Bounds]] = [{} for _ in runs]
    for name in connector.bounded_columns(decoding):
        together = _bounds_of_all(runs, name, starts, counts)
        for run, known, found in zip(runs, bounds, together, strict=True):
            one = found or _bounds(run.batches, name)
            if one is not None:
                known[name] = one
    return [RunStatistics(*each) for each in zip(counts, bounds, strict=True)]


def _is_plain(run: DecodedRun, columns: int) -> bool:
    return not run.losses and all(len(batch.schema) == columns for batch in run.batches)


def _bounds_of_all(
    runs: Sequence[DecodedRun], name: str, starts: list[int], counts: list[int]
) -> Sequence[Bounds | None]:
    """Return the bounds of a column in each run, as far as numbers tell them."""
    parts = [_comparable(batch.column(name)) for run in runs for batch in run.batches]
    if not all(isinstance(part, pa.Array) for part in parts):
        return [None] * len(runs)
    whole = pa.concat_arrays(parts)
    if whole.null_count == len(whole):
        return [Bounds(None, None, rows) for rows in counts]
    if whole.null_count or not pa.types.is_integer(whole.type):
        return [None] * len(runs)
    numbers = whole.to_numpy()
    lows = np.minimum.reduceat(numbers, starts).tolist()
    highs = np.maximum.reduceat(numbers, starts).tolist()
    return [Bounds(low, high, 0) for low, high in zip(lows, highs, strict=True)]


def _bounds(batches: Iterable[pa.RecordBatch], name: str) -> Bounds | None:
    """Return the bounds of a column, as the values of filters; None if it has none."""
    parts = []
    for batch in batches:
        part = _comparable(batch.column(name))
        if part is None:
            return None
        parts.append(part)
    nulls = sum(part.null_count for part in parts)
    limits = [pc.min_max(part).as_py() for part in parts]
    lows = [limit["min"] for limit in limits if limit["min"] is not None]
    highs = [limit["max"] for limit in limits if limit["max"] is not None]
    if not lows:
        return Bounds(None, None, nulls)
    return Bounds(_low(min(lows)), _high(max(highs)), nulls)


def _comparable(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return column.view(pa.int64())
    if pa.types.is_date32(kind):
        return column.view(pa.int32())
    is_plain = (
        pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
    )
    return column if is_plain else None


def _low(value: Any) -> Any:  # noqa: ANN401
    """Return a lower bound as the values of filters are: bytes as texts."""
    if isinstance(value, bytes):
        return value[:_MAX_TEXT].decode("latin-1")
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def _high(value: Any) -> Any:  # noqa: ANN401
    """Return an upper bound, likewise; None if it is too long to keep."""
    if isinstance(value, str | bytes) and len(value) > _MAX_TEXT:
        return None
    return _low(value)
