"""Scans that are read in the JVM: the rows are those that Python reads."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.needs import SPARK_4_1
from tests.spark.applications import run_application
from tests.spark.jvm_reader_driver import CHECKS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, jdk: None) -> dict[str, str | None]:
    """What went wrong in an application with the reader, for each of its checks."""
    directory = tmp_path_factory.mktemp("driver")
    done = run_application("jvm_reader_driver", directory, timeout_s=600)
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    return {name: json.loads(wrong) for name, _, wrong in lines}


@SPARK_4_1
@pytest.mark.parametrize("check", CHECKS)
def test_in_an_application_with_the_reader(
    found: dict[str, str | None], check: str
) -> None:
    wrong = found[check]
    assert wrong is None, wrong


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
def test_where_the_jvm_may_not_open_the_memory_of_the_node(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    done = run_application("shielded_node_driver", tmp_path, PYTHONPATH=path)
    found = json.loads(done.stdout)
    for read in found:
        assert read["is_same"]
        assert read["in_python"] == read["rows"] > 0
        assert read["in_jvm"] == 0
    assert found[1]["hits"] == found[2]["hits"] > 0
    warnings = [line for line in done.stderr.splitlines() if "TopicReader" in line]
    assert len(warnings) == 1
    assert "may not open the memory of the node, /proc/" in warnings[0]


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
def test_where_the_temporary_directory_has_a_long_path(tmp_path: Path) -> None:
    done = run_application("long_paths_driver", tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    assert min(found["runs_in_jvm"]) > 0
    assert found["left"] == []
