"""How finely MapFiles are cut."""

from __future__ import annotations

import pytest

from sparkcache_pulsar import mapfile


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place of an index begins an extent."""
    monkeypatch.setattr(mapfile, "EXTENT_BYTES", 1)
    monkeypatch.setattr(mapfile, "RUN_BYTES", 1)
