"""The plugin starts the node of an executor before its first task, and ends it."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.applications import run_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jdk")]


def run(directory: Path, master: str, *confs: str) -> dict[str, Any]:
    """Run an application; return what it found."""
    done = run_application("early_node_driver", directory, master, *confs)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(set(found["rows"])) == 1
    return found


def test_every_executor_has_a_node_before_its_first_task(tmp_path: Path) -> None:
    more = tmp_path / "more.zip"
    with zipfile.ZipFile(more, "w") as archive:
        archive.writestr("more.py", "")
    found = run(
        tmp_path,
        "local-cluster[2,1,1024]",
        "spark.sparkcache.maxBytes=64m",
        "spark.executor.pyspark.memory=1g",
        f"spark.submit.pyFiles={more}",
    )
    assert found["has_early_nodes"]
    assert found["is_same"], "the first task started another"
    assert [one["max_bytes"] for one in found["early_settings"]] == [64 << 20] * 2
    assert found["installed_limits"] == [32 << 20] * 2
    assert found["worker_limits"] == [1 << 30]
    assert found["early_limits"] == ["unlimited"] * 2
    assert all("more.zip" in paths for paths in found["early_paths"])
    assert found["later"] == 2, "nodes that were killed were not started again"
    assert not found["left"]


@pytest.mark.long
def test_in_local_mode_the_node_ends_with_the_session(tmp_path: Path) -> None:
    found = run(tmp_path, "local[2]")
    assert found["has_early_nodes"]
    assert found["is_same"]
    assert found["later"] == 1
    assert found["left_at_once"] == 0


@pytest.mark.long
def test_where_that_fails_the_first_task_starts_the_node(tmp_path: Path) -> None:
    found = run(tmp_path, "local[2]", "spark.pyspark.python=/bin/false")
    assert not found["has_early_nodes"]
    assert found["later"] == 1
    assert not found["left"]


def test_a_node_is_asked_to_end(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    node = loader.loadClass("org.apache.spark.sparkcache.NodeProcess")
    (end,) = [one for one in node.getDeclaredMethods() if one.getName() == "end"]
    end.setAccessible(True)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[1] = jvm.java.lang.Long(0)
    with subprocess.Popen(["sleep", "60"]) as process:
        for name in ("", "no node", f"{process.pid}-17f"):
            arguments[0] = name
            end.invoke(None, arguments)
        assert process.wait(10) == -15
