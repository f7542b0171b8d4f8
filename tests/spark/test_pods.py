"""Executors in pods, as on Kubernetes: each has a node, and reads through it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from sparkcache.testing.s3_server import S3Server
from sparkcache.testing.standalone import Standalone
from sparkcache_pulsar.testing import synthetic_topic
from tests.needs import SPARK_4_1
from tests.spark.applications import run_application
from tests.spark.pods import LOCAL_DIRS, USER, Pods
from tests.spark.spark_topics import TOPIC

pytestmark = pytest.mark.spark

BUCKET = "offload"
LEDGERS = 6
EXECUTORS = 3  # two of them on one worker
LIKE_IMAGE = Pods("size=64m", "hidepid=0", has_tmp=True, has_init=True)
CLOSED = Pods("ro,size=4k,mode=000", "hidepid=2", has_tmp=False, has_init=False)


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
@pytest.mark.long
@pytest.mark.parametrize(
    ("pods", "writable", "shm_mib"),
    [
        pytest.param(LIKE_IMAGE, ["/tmp", "/dev/shm"], 64.0, id="as in Spark's image"),
        pytest.param(CLOSED, [], 4 / 1024, id="the JVM is first; nothing is writable"),
    ],
)
def test_executors_in_pods(
    pods: Pods,
    writable: list[str],
    shm_mib: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java_home = pods.java_home(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        plain_bytes = 0
        for stored in synthetic_topic(TOPIC, 1 << 20, ledgers=LEDGERS):
            server.put(BUCKET, stored.key, stored.data, stored.metadata)
            plain_bytes += 0 if stored.key.endswith("-index") else len(stored.data)
        arguments = java_home, server.endpoint, BUCKET, TOPIC, str(pods.has_tmp).lower()
        with Standalone(tmp_path, 2, local_directory=tmp_path) as cluster:
            done = run_application(
                "pods_driver", cluster.url, *arguments, timeout_s=600
            )
        sent = {
            key: count.sent_bytes
            for key, count in server.counts().items()
            if not key.endswith(("/", "-index"))
        }
    in_python, in_jvm = map(json.loads, done.stdout.splitlines())
    assert len(sent) == LEDGERS
    assert in_python["runs_in_jvm"] == 0
    assert in_jvm["runs_in_jvm"] == in_jvm["last"]["hits"]
    for session in (in_python, in_jvm):
        assert session["is_same"]
        assert session["rows"] > 0
        assert session["last"]["hits"] == session["last"]["requests"] >= LEDGERS
        assert plain_bytes <= session["received_bytes"] <= EXECUTORS * plain_bytes
        assert session["nodes"] == EXECUTORS
        assert len(session["pods"]) == EXECUTORS
        for number in range(3):
            seen = {pod["namespaces"][number] for pod in session["pods"]}
            assert len(seen) == EXECUTORS
        for pod in session["pods"]:
            assert (pod["user"], pod["capabilities"]) == (USER, 0)
            assert pod["writable"] == writable
            assert pod["shm_mib"] == shm_mib
            assert (pod["jvm"] == 1) is not pods.has_init
    # Each session has also read the topic once without the cache, to compare.
    received = in_python["received_bytes"] + in_jvm["received_bytes"]
    assert sum(sent.values()) == received + 2 * plain_bytes
    assert not Path(LOCAL_DIRS).exists()
