"""A bucket for streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.source.stream_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    from tests.unit.source.stream_world import World  # needs Spark 4.2

    return World(tmp_path / "bucket")
