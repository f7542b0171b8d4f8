"""How hard the tests search: TEST_EFFORT=10 tries ten times as much."""

from __future__ import annotations

import os

_EFFORT = float(os.environ.get("TEST_EFFORT", "1"))


def tries(count: int) -> int:
    """Return how many cases to try where `count` are tried in every run."""
    return max(1, round(count * _EFFORT))
