"""Streams and scans of a topic share what their executors hold, each at its home."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.needs import SPARK_4_2
from tests.spark.applications import run_application

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jdk"), SPARK_4_2]


def test_two_streams_and_a_scan_read_the_storage_once(tmp_path: Path) -> None:
    done = run_application("stream_homes_driver", tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    first, second, scan, anywhere = found["rows"]
    assert len(first) > len(second) > len(scan)
    assert sum(first) == sum(second) == sum(scan) == sum(anywhere)
    for reader in ("first", "second", "scan"):
        spent = found[reader]
        assert spent["home_requests"] >= 0.99 * spent["requests"] > 0
        assert spent["sent_bytes"] == (
            found["stored_bytes"] if reader == "first" else 0
        )
    assert found["anywhere"]["requests"] > 0
    assert found["anywhere"]["home_requests"] == 0
    assert found["anywhere"]["away_requests"] == 0
    assert found["missing_interfaces"] == ["org.apache.spark.internal.Logging"]
    assert found["error_of_stopped"] is None
