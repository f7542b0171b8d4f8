"""What the tests of a task share: its scan, and the address of its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkcache import connector as connectors
from sparkcache.node.address import Address
from sparkcache.node.launch import suspected
from tests.unit.node.client_world import NumbersConnector, write_scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sparkcache.fetch import Scan


@pytest.fixture
def scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    """Four runs, with 0 to 3 in them."""
    monkeypatch.setattr(connectors, "find", lambda _: NumbersConnector())
    return write_scan(tmp_path)


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    yield Address(tmp_path)
    suspected.clear()  # the nodes of these tests are threads of this process
