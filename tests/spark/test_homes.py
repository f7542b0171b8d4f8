"""Homes on a cluster: what the storage sends, also when an executor is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.needs import SPARK_4_1
from tests.spark.applications import run_application
from tests.spark.homes_driver import EXECUTORS, LEDGERS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jdk"), SPARK_4_1]


def application(change: str) -> dict[str, Any]:
    done = run_application("homes_driver", change)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(set(found["totals"])) == 1
    assert not any(found["held"]), "the last planned read was known to be the last"
    return found


@pytest.mark.parametrize(
    "change", ["killed", pytest.param("decommissioned", marks=pytest.mark.long)]
)
def test_a_lost_executor_costs_what_it_held(change: str) -> None:
    found = application(change)
    assert found["home_requests"] == found["requests"] > 0
    assert found["before"] == dict.fromkeys(found["sizes"], 1)
    assert set(found["after"].values()) == {1, 2}, "no extent more than once again"
    again = sum(count - 1 for count in found["after"].values())
    assert again <= LEDGERS / EXECUTORS + 2, "what it was home of, at most"


@pytest.mark.long
def test_executors_that_are_added_take_over_what_nobody_holds() -> None:
    found = application("added")
    assert set(found["after"].values()) <= {1, 2}, "no extent more than once again"
