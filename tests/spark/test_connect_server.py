"""Spark Connect's server, on a cluster with two executors on one host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcache.jvm.jar import PLUGIN, plugin_jar, reader_jar
from sparkcache.testing.standalone import Standalone
from tests.needs import SPARK_4_1
from tests.spark.applications import run_application
from tests.spark.jvm_reader_world import IN_JVM
from tests.spark.spark_topics import write
from tests.spark.test_cluster import fetch, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTS_S = 60.0


@contextmanager
def server(master: str, directory: Path) -> Iterator[tuple[str, str]]:
    """A server with our jars; its URL, and that of its UI."""
    port, ui_port = free_port(), free_port()
    confs = {
        "spark.plugins": PLUGIN,
        "spark.connect.grpc.binding.port": port,
        "spark.ui.port": ui_port,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": 1,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        "spark.scheduler.minRegisteredResourcesRatio": 1,
    }
    program = Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit"
    command = [
        str(program),
        "--master",
        master,
        "--jars",
        f"{plugin_jar()},{reader_jar()}",
    ]
    for key, value in confs.items():
        command += ["--conf", f"{key}={value}"]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--class", SERVER, "spark-internal"],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            cwd=directory,
            stdout=log,
            stderr=log,
        )
    ui = f"http://127.0.0.1:{ui_port}"
    try:
        end_s = time.monotonic() + STARTS_S
        while "executors" not in fetch(f"{ui}/sparkcache/json"):
            log_so_far = (directory / "server.log").read_text(errors="replace")
            assert process.poll() is None, log_so_far
            assert time.monotonic() < end_s, log_so_far
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}", ui
    finally:
        process.terminate()
        process.wait()


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
@pytest.mark.skipif(find_spec("grpc") is None, reason="needs pyspark[connect]")
def test_a_client_reads_in_the_jvms_of_the_executors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    topic = write(tmp_path / "topic")
    with (
        Standalone(tmp_path, 1, local_directory=tmp_path) as cluster,
        server(cluster.url, tmp_path) as (url, ui),
    ):
        done = run_application("connect_client", url, topic.directory)
        end_s = time.monotonic() + STARTS_S
        while True:  # reports of executors come once per second
            executors = json.loads(fetch(f"{ui}/sparkcache/json"))["executors"]
            hits = [one["metrics"]["cache.gets.hit"] for one in executors]
            if sum(hits) or time.monotonic() > end_s:
                break
            time.sleep(0.1)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [topic.rows] * 3
    assert IN_JVM in found["plan"]
    assert len(executors) == 2
    assert sum(hits) > 0
