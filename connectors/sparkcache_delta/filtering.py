"""Rows that a scan wants, of runs that are held for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.connector import DecodedRun
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from sparkcache.model import RunKey


class Resolver:
    """Leaves out rows that `where` does not want."""

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        self._where = Where.parse(options, schema)

    def __repr__(self) -> str:
        return f"Resolver({self._where})"

    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:  # noqa: ARG002
        """Return the rows that are wanted."""
        if not self._where.comparisons:
            return run
        wanted = [self._where.rows(batch) for batch in run.batches]
        return DecodedRun([batch for batch in wanted if batch.num_rows], run.losses)
