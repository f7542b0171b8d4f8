"""Effort of randomized tests: TEST_EFFORT=10 tries ten times as many cases."""

from __future__ import annotations

import os

_EFFORT = float(os.environ.get("TEST_EFFORT", "1"))


def tries(count: int) -> int:
    """Return the number of cases to try, which is `count` at normal effort."""
    return max(1, round(count * _EFFORT))
