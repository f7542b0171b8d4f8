"""Read a topic through a connector without a cache, as the expected result."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache.connector import Selection
from sparkcache.fetch import Load, begin
from sparkcache.model import RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.connector import Connector, DecodedRun, Snapshot, Storage
    from sparkcache.model import Loss


def discover(
    connector: Connector, storage: Storage, topic: str, options: Mapping[str, str]
) -> Snapshot:
    """Return the snapshot of a topic, by its full name."""
    catalog = connector.catalog(storage, options)
    (name,) = catalog.select(Selection((topic,)))
    return catalog.snapshot(name)


def decoded_runs(
    connector: Connector,
    storage: Storage,
    topic: str,
    options: Mapping[str, str] | None = None,
    *,
    run_bytes: int = 1 << 20,
    batch_bytes: int = 1 << 20,
) -> Iterator[tuple[RunKey, DecodedRun]]:
    """Yield every decoded run of a topic, with one request per extent."""
    snapshot = discover(connector, storage, topic, options or {})
    for ledger_map in snapshot.ledgers:
        ledger = ledger_map.ledger
        for extent in ledger_map.extents:
            runs = connector.runs(extent, run_bytes)
            end = extent.offset + extent.size_bytes
            whole = Load(ledger, extent, tuple(runs), extent.offset, end)
            with closing(begin(storage, whole)) as stream:
                for raw in connector.split(ledger, extent, runs, stream):
                    key = RunKey(ledger, raw.run)
                    yield key, connector.decode(ledger, raw, batch_bytes)


def read_topic(
    connector: Connector,
    storage: Storage,
    topic: str,
    options: Mapping[str, str] | None = None,
    *,
    run_bytes: int = 1 << 20,
    batch_bytes: int = 1 << 20,
) -> tuple[list[dict[str, Any]], list[Loss]]:
    """Return all rows, as Python values, and all losses found while reading."""
    runs = decoded_runs(
        connector,
        storage,
        topic,
        options,
        run_bytes=run_bytes,
        batch_bytes=batch_bytes,
    )
    decoding = connector.decoding(options or {})
    return resolved_rows(connector, list(runs), decoding, options)


def as_dicts(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return rows as dictionaries in which maps are dictionaries as well.

    pyarrow has an argument for it, `maps_as_pydicts`, from version 20 on.
    """
    columns = (
        [_as_python(value, field.type) for value in column.to_pylist()]
        for field, column in zip(rows.schema, rows.columns, strict=True)
    )
    names = rows.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _as_python(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - any value
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _as_python(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_as_python(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _as_python(value[field.name], field.type) for field in kind}
    return value


def resolved_rows(
    connector: Connector,
    runs: Sequence[tuple[RunKey, DecodedRun]],
    decoding: str,
    options: Mapping[str, str] | None = None,
    *,
    parts: int = 1,
    missing: Sequence[Loss] = (),
) -> tuple[list[dict[str, Any]], list[Loss]]:
    """Return the rows of a topic's runs, resolved by `parts` tasks.

    `missing` are the losses of the topic's snapshot.
    """
    rows: list[dict[str, Any]] = []
    losses: list[Loss] = []
    for part in range(parts):
        start = len(runs) * part // parts
        stop = len(runs) * (part + 1) // parts
        around = RunsAround(runs, start, missing)
        resolver = connector.resolver(decoding, options or {}, around)
        for key, decoded in runs[start:stop]:
            resolved = resolver.resolve(key, decoded)
            for batch in resolved.batches:
                batch.validate(full=True)
                rows += as_dicts(batch)
            losses += resolved.losses
    return rows, losses


class RunsAround:
    """Surrounding runs of those from `start` on; see `connector.SurroundingRuns`."""

    def __init__(
        self,
        runs: Sequence[tuple[RunKey, DecodedRun]],
        start: int,
        losses: Sequence[Loss] = (),
    ) -> None:
        self._runs = runs
        self._start = start
        self._losses = losses

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield the runs before `start`, backwards, each in a group of its own."""
        for index in reversed(range(self._start)):
            yield iter([self._runs[index][1]])

    def after(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs after `key`, in order."""
        keys = [key for key, _ in self._runs]
        yield from self._runs[keys.index(key) + 1 :]

    def losses(self) -> Sequence[Loss]:
        """Return the losses of the topic's snapshot."""
        return self._losses
