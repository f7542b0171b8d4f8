"""Reads a topic through a connector alone: what any cache must not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkcache.connector import Connector, DecodedRun, Storage
    from sparkcache.model import Loss, Run


def decoded_runs(
    connector: Connector,
    storage: Storage,
    topic: str,
    options: Mapping[str, str] | None = None,
    *,
    run_bytes: int = 1 << 20,
    batch_bytes: int = 1 << 20,
) -> Iterator[tuple[Run, DecodedRun]]:
    """Yield every run of a topic, decoded, with one request per extent."""
    snapshot = connector.discover(storage, topic, options or {})
    for ledger_map in snapshot.ledgers:
        ledger = ledger_map.ledger
        for extent in ledger_map.extents:
            runs = connector.runs(extent, run_bytes)
            stream = storage.open(ledger.object, extent.offset, extent.size_bytes)
            for raw in connector.split(ledger, extent, runs, stream):
                yield raw.run, connector.decode(ledger, raw, batch_bytes)


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
    rows: list[dict[str, Any]] = []
    losses: list[Loss] = []
    for _, decoded in decoded_runs(
        connector,
        storage,
        topic,
        options,
        run_bytes=run_bytes,
        batch_bytes=batch_bytes,
    ):
        for batch in decoded.batches:
            batch.validate(full=True)
            rows += batch.to_pylist(maps_as_pydicts="strict")
        losses += decoded.losses
    return rows, losses
