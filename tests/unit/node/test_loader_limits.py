"""How many loaders a node has, from what the executor and its container allow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import NodeConfig
from sparkcache.node.cgroup import cpu_limit, memory_limit
from sparkcache.node.loader_limits import (
    LoaderLimits,
    executor_cores,
    loader_limits,
    private_bytes,
    usable_cores,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
EXECUTOR = "java -cp x org.apache.spark.executor.CoarseGrainedExecutorBackend "
SUBMIT = "java -cp x org.apache.spark.deploy.SparkSubmit "

V1 = "31 23 0:28 / {at}/v1 rw shared:9 - cgroup cgroup rw,{controller}"
V2 = "41 31 0:38 {root} {at}/v2 rw,nosuid - cgroup2 cgroup2 rw"


@pytest.mark.parametrize(
    ("loaders", "memory_mib", "cores", "most", "share_mib"),
    [
        pytest.param(0, 0, 2, 2, 256, id="one for each core"),
        pytest.param(0, 0, 64, 8, 256, id="at most eight"),
        pytest.param(24, 0, 2, 24, 256, id="as many as are asked for"),
        pytest.param(0, 2048, 8, 8, 256, id="shares of a limit"),
        pytest.param(0, 512, 8, 2, 256, id="fewer loaders with large enough shares"),
        pytest.param(0, 64, 8, 1, 64, id="never none"),
        pytest.param(4, 64, 8, 4, 16, id="as small as is asked for"),
    ],
)
def test_limits(
    loaders: int, memory_mib: int, cores: int, most: int, share_mib: int
) -> None:
    config = NodeConfig(loaders=loaders, loader_memory_bytes=memory_mib * MIB)
    assert loader_limits(config, cores) == LoaderLimits(most, share_mib * MIB)


@pytest.mark.parametrize(
    ("command", "cores"),
    [
        (EXECUTOR + "--executor-id 1 --hostname h --cores 3 --app-id a", 3),
        (EXECUTOR + "--executor-id 1", None),
        (SUBMIT + "--conf spark.master=local[2] pyspark-shell", 2),
        (SUBMIT + "--master local[4,2] job.py", 4),
        (SUBMIT + "--master local job.py", 1),
        (SUBMIT + "--master local[*] job.py", None),
        (SUBMIT + "--master local-cluster[2,3,1024] job.py", None),
        (SUBMIT + "job.py --cores 9", None),
        ("", None),
    ],
)
def test_cores_of_the_jvm(command: str, cores: int | None, tmp_path: Path) -> None:
    path = tmp_path / "cmdline"
    path.write_bytes(command.replace(" ", "\0").encode() + b"\0")
    assert executor_cores(path) == cores


def test_a_process_that_has_ended_has_no_cores_and_no_memory() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert executor_cores(Path(f"/proc/{process.pid}/cmdline")) is None
    assert private_bytes(process.pid) == 0


def test_private_memory_is_that_of_the_heap_alone() -> None:
    before = private_bytes(os.getpid())
    heap = b"x" * (64 * MIB)
    fd = os.memfd_create("test")
    os.write(fd, heap)
    grown = private_bytes(os.getpid()) - before
    os.close(fd)
    assert 60 * MIB < grown < 70 * MIB


def proc(tmp_path: Path, mounts: str, groups: str, files: dict[str, str]) -> Path:
    """A directory like /proc/self, with the files of control groups beside it."""
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    (tmp_path / "mountinfo").write_text(
        "23 1 0:5 / / rw - ext4 /dev/root rw\n" + mounts.format(at=tmp_path) + "\n"
    )
    (tmp_path / "cgroup").write_text(groups + "\n")
    return tmp_path


def v1(controller: str) -> str:
    return V1.replace("{controller}", controller)


def v2(root: str = "/") -> str:
    return V2.replace("{root}", root)


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "limit"),
    [
        pytest.param(
            v2(), "0::/", {"v2/cpu.max": "150000 100000"}, 1.5, id="the mounted group"
        ),
        pytest.param(
            v2(),
            "0::/pod/box",
            {"v2/pod/box/cpu.max": "max 100000", "v2/pod/cpu.max": "200000 100000"},
            2.0,
            id="a group above it",
        ),
        pytest.param(v2(), "0::/", {"v2/cpu.max": "max 100000"}, None, id="no limit"),
        pytest.param(
            v2("/pod"), "0::/pod/a", {"v2/a/cpu.max": "1000 1000"}, 1.0, id="a part"
        ),
        pytest.param(
            v2(), "0::/../b", {"v2/cpu.max": "1000 1000"}, 1.0, id="not in view"
        ),
        pytest.param(
            v1("cpu,cpuacct"),
            "4:cpu,cpuacct:/docker/x\n0::/",
            {
                "v1/docker/x/cpu.cfs_quota_us": "50000",
                "v1/docker/x/cpu.cfs_period_us": "100000",
            },
            0.5,
            id="version 1",
        ),
        pytest.param(
            v1("cpu"),
            "4:cpu:/docker/x",
            {"v1/cpu.cfs_quota_us": "300000", "v1/cpu.cfs_period_us": "100000"},
            3.0,
            id="version 1, in a container",
        ),
        pytest.param(
            v1("cpu"),
            "4:cpu:/",
            {"v1/cpu.cfs_quota_us": "-1", "v1/cpu.cfs_period_us": "100000"},
            None,
            id="version 1, no limit",
        ),
        pytest.param(v1("memory"), "4:memory:/", {}, None, id="no such controller"),
    ],
)
def test_the_quota_of_processors(
    tmp_path: Path,
    mounts: str,
    groups: str,
    files: dict[str, str],
    limit: float | None,
) -> None:
    assert cpu_limit(proc(tmp_path, mounts, groups, files)) == limit


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "limit"),
    [
        pytest.param(
            v2(),
            "0::/pod/box",
            {"v2/pod/box/memory.max": "max", "v2/pod/memory.max": "1073741824"},
            1 << 30,
            id="version 2",
        ),
        pytest.param(
            v1("memory"),
            "9:memory:/x",
            {"v1/x/memory.limit_in_bytes": "4096"},
            4096,
            id="version 1",
        ),
        pytest.param(
            v1("memory"),
            "9:memory:/x",
            {"v1/x/memory.limit_in_bytes": "9223372036854771712"},
            None,
            id="version 1, no limit",
        ),
    ],
)
def test_the_limit_of_memory(
    tmp_path: Path,
    mounts: str,
    groups: str,
    files: dict[str, str],
    limit: int | None,
) -> None:
    assert memory_limit(proc(tmp_path, mounts, groups, files)) == limit


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert cpu_limit(tmp_path) is None
    assert memory_limit(tmp_path) is None


@pytest.fixture
def group() -> Iterator[list[Path]]:
    """Real control groups, of processors and of memory, with limits."""
    limits = {
        "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "120000"},
        "memory": {"memory.limit_in_bytes": str(512 * MIB)},
    }
    groups = []
    try:
        for controller, files in limits.items():
            path = Path(f"/sys/fs/cgroup/{controller}/sparkcache-test-{os.getpid()}")
            try:
                path.mkdir()
                groups.append(path)
                for name, content in files.items():
                    (path / name).write_text(content)
            except OSError as error:
                pytest.skip(f"control groups cannot be made here: {error}")
        yield groups
    finally:
        for path in groups:
            path.rmdir()


def test_real_control_groups_limit_a_node(group: list[Path]) -> None:
    code = """
import os, sys, logging
for group in sys.argv[1:]:
    with open(group + "/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
from sparkcache.config import NodeConfig
from sparkcache.node import cgroup, loader_limits
logging.basicConfig()
print(cgroup.cpu_limit(), cgroup.memory_limit() >> 20)
loader_limits.warn_if_too_large(NodeConfig(max_bytes=1 << 30), cores=2)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, group)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout.split() == ["1.2", "512"]
    assert "maxBytes=1g and 2 loaders of up to 256m each" in done.stderr
    assert "more than the 512m of memory" in done.stderr


def test_cores_are_limited_by_the_cpus_of_this_process() -> None:
    assert 1 <= usable_cores(os.getpid()) <= len(os.sched_getaffinity(0))
