"""Whatever is damaged: each offset with its row, or reported as lost.

What is asked for, and what cannot be, stands in fuzzing.py. To look for more, for
FUZZ_SECONDS of the environment:

    FUZZ_SECONDS=1200 python -m pytest -m long tests/unit/rocketmq/test_fuzz.py

and to try one case again, as a failure says:

    FUZZ_CASE=17 python -m pytest tests/unit/rocketmq/test_fuzz.py -k again
"""

from __future__ import annotations

import os
import time

import pytest

from tests.effort import tries

from .fuzzing import Case, check, original
from .fuzzing import campaign as run_campaign
from .reference import read_record

CASES = tries(40)
PARTS = 2


@pytest.mark.parametrize("kind", range(4))
def test_the_reference_reads_what_was_written(kind: int) -> None:
    log = original(kind)
    for offset, (place, _) in log.places.items():
        rows = read_record(log.data, place, log.topic, "broker-a", log.queue_id)
        assert log.rows[offset - log.first] in rows
    assert log.read().rows == log.rows


@pytest.mark.parametrize("part", range(PARTS))
def test_damage(part: int) -> None:
    lost = rows = 0
    for seed in range(part, CASES, PARTS):
        found = check(Case(seed))
        lost += len(found.losses)
        rows += len(found.rows)
    assert lost > 10
    assert rows > 1000


@pytest.mark.skipif("FUZZ_CASE" not in os.environ, reason="FUZZ_CASE is not set")
def test_a_case_again() -> None:
    check(Case(int(os.environ["FUZZ_CASE"])))


@pytest.mark.long
def test_many_cases() -> None:
    seconds = float(os.environ.get("FUZZ_SECONDS", "120"))
    cases, failed = run_campaign(seconds, seed=int(time.time()))
    assert cases > seconds
    assert not failed, "\n".join(failed[:20])
