"""The conf files for YARN and Kubernetes: Spark knows them, and the cache has room."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sparkcache.config import CacheConfig
from sparkcache.node.loader_limits import loader_limits
from tests.needs import SPARK_4_2
from tests.spark.applications import ROOT, run_application
from tests.spark.cluster_confs_driver import properties_of

pytestmark = pytest.mark.spark

FILES = ("kubernetes.conf", "yarn.conf")
OURS = "spark.sparkcache."
# Keys that Spark reads without registering them: the master, and variables by prefix.
UNREGISTERED = ("spark.master", "spark.yarn.appMasterEnv.")
MIB = 1 << 20
USER_OF_IMAGE = 185  # of Spark's own


@pytest.fixture(scope="module", params=FILES)
def file(request: pytest.FixtureRequest) -> Path:
    return ROOT / "conf" / str(request.param)


@pytest.fixture(scope="module")
def made(file: Path) -> dict[str, Any]:
    """What Spark makes of a file."""
    done = run_application("cluster_confs_driver", file)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@SPARK_4_2
def test_spark_knows_every_property(made: dict[str, Any], file: Path) -> None:
    unknown = [key for key in made["unknown"] if not key.startswith(UNREGISTERED)]
    ours = [key for key in properties_of(file) if key.startswith(OURS)]
    assert unknown == ours != []


@SPARK_4_2
def test_a_container_has_room_beside_the_heap(made: dict[str, Any], file: Path) -> None:
    properties = properties_of(file)
    config = CacheConfig.resolve(conf=properties)
    cores = int(properties["spark.executor.cores"])
    heap_mib = _mib(properties["spark.executor.memory"])
    limits = loader_limits(config.node, cores)
    assert limits.most == cores
    of_cache_mib = (config.node.max_bytes + limits.size_bytes) // MIB
    spark_own_mib = max(384, heap_mib // 10)
    assert made["memory_mib"] >= heap_mib + spark_own_mib + of_cache_mib


def test_the_overhead_is_the_sum_that_is_explained(file: Path) -> None:
    parts = re.findall(r"^# +(\d+)m  ", file.read_text(), flags=re.MULTILINE)
    properties = properties_of(file)
    assert sum(map(int, parts)) == _mib(properties["spark.executor.memoryOverhead"])
    config = CacheConfig.resolve(conf=properties).node
    of_cache = config.max_bytes // MIB, config.loader_memory_bytes // MIB
    assert tuple(map(int, parts[:2])) == of_cache


@SPARK_4_2
@pytest.mark.parametrize("file", ["kubernetes.conf"], indirect=True)
def test_the_pod_that_spark_makes_of_the_template(made: dict[str, Any]) -> None:
    spec = made["pod"]["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["limits"]["memory"] == f"{made['memory_mib']}Mi"
    assert spec["securityContext"]["runAsUser"] == USER_OF_IMAGE
    assert container["securityContext"]["readOnlyRootFilesystem"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    writable = {
        mount["mountPath"]
        for mount in container["volumeMounts"]
        if "emptyDir" in volumes[mount["name"]]
    }
    values = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert writable == {"/tmp", "/opt/spark/work-dir", values["SPARK_LOCAL_DIRS"]}


def _mib(size: str) -> int:
    number, unit = int(size[:-1]), size[-1]
    return number * {"m": 1, "g": 1024}[unit]
