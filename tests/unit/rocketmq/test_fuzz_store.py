"""Whatever objects are removed, cut or damaged: each offset is accounted for."""

from __future__ import annotations

import pytest

from tests.effort import tries

from .store_fuzzing import check

CASES = tries(60)
PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_queues_whose_objects_are_damaged(part: int) -> None:
    found = [check(seed) for seed in range(part, CASES, PARTS)]
    assert sum(rows for rows, _ in found) > 300
    assert sum(lost for _, lost in found) > 100
