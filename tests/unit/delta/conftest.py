"""Fixtures: a directory of tables, and a table that streams read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.delta.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.delta.streamed_table import Table


@pytest.fixture(scope="session", autouse=True)
def _threads_of_delta_rs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the permanent threads of delta-rs before tests check for leaked threads."""
    path = tmp_path_factory.mktemp("first") / "table"
    write_deltalake(path, pa.table({"id": [1]}))
    DeltaTable(path).history()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def table(lake: Lake) -> Table:
    from tests.unit.delta.streamed_table import Table  # needs Spark 4.2

    return Table(lake)
