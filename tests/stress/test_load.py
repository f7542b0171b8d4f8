"""What the load program measures holds its limits."""

from __future__ import annotations

import pytest

from tests.stress import load


@pytest.mark.long
def test_two_hundred_tasks_never_make_a_node_hold_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "")  # restored at the end
    found = load.capped()
    assert found["bytes_over_cap"] <= 1
    assert found["samples"] > 10
