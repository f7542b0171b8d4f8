"""A directory of tables, written by delta-rs and by Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, write_deltalake

from sparkcache.config import StorageConfig
from sparkcache.connector import Selection, Snapshot
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing.reading import discover, read_topic
from sparkcache_delta import DeltaConnector

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from sparkcache.filters import Filter
    from sparkcache.model import Loss

CONNECTOR = DeltaConnector()
RUN_BYTES = 1 << 20


@dataclass(frozen=True)
class Lake:
    """A directory of tables, read through the connector without Spark."""

    directory: Path

    def __post_init__(self) -> None:
        self.directory.mkdir()

    def write(self, table: str, rows: pa.Table, **arguments: Any) -> DeltaTable:
        arguments = {"mode": "append"} | arguments
        write_deltalake(self.directory / table, rows, **arguments)
        return DeltaTable(self.directory / table)

    def pin(self, table: str, **options: str) -> Mapping[str, str]:
        topic = CONNECTOR.topic_name(table)
        return CONNECTOR.pin(self.storage(), Selection((topic,)), options)

    def snapshot(self, table: str, **options: str) -> Snapshot:
        pinned = self.pin(table, **options)
        return discover(CONNECTOR, self.storage(), table, pinned)

    def snapshot_for(self, table: str, *filters: Filter, **options: str) -> Snapshot:
        topic = CONNECTOR.topic_name(table)
        catalog = CONNECTOR.catalog(self.storage(), self.pin(table, **options))
        return catalog.snapshot_for(topic, filters)

    def read(
        self, table: str, run_bytes: int = RUN_BYTES, **options: str
    ) -> tuple[list[dict[str, Any]], list[Loss]]:
        pinned = self.pin(table, **options)
        storage = self.storage()
        return read_topic(CONNECTOR, storage, table, pinned, run_bytes=run_bytes)

    def rows(self, table: str, **options: str) -> list[dict[str, Any]]:
        rows, losses = self.read(table, RUN_BYTES, **options)
        assert not losses
        return rows

    def storage(self) -> Any:
        return open_storage(f"file://{self.directory}", StorageConfig(), Traffic())
