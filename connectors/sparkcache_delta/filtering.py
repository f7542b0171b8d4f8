"""Filtering of cached runs, which hold the rows of all scans, for one scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.connector import DecodedRun
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from sparkcache.model import RunKey


class Resolver(connectors.Resolver):
    """Removes the rows that do not match `where`."""

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        self._where = Where.parse(options, schema)

    def __repr__(self) -> str:
        return f"Resolver({self._where})"

    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:  # noqa: ARG002
        """Return the rows of a run that match."""
        if not self._where.comparisons:
            return run
        matching = [self._where.rows(batch) for batch in run.batches]
        return DecodedRun([batch for batch in matching if batch.num_rows], run.losses)
