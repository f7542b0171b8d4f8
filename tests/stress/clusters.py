"""Clusters on this machine: a standalone master with its workers, or `local-cluster`.

A standalone cluster is processes of its own, started with the `spark-class` that comes
with pyspark. All of them are descendants of this process, and are gone at the end.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STARTS_S = 60.0
_URL = re.compile(r"spark://[\w.]+:\d+")
_CLONE_NEWNS = 0x00020000
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster(Protocol):
    """A cluster that an application can run on.

    Attributes:
        url: The `master` of the application.
        can_lose_machines: Whether `lose_machine` works.

    """

    url: str
    can_lose_machines: bool

    def lose_machine(self, share: float) -> int:
        """Kill the process that stands for a machine, and start another.

        Returns its process id.

        Args:
            share: Which one, from 0 to 1.

        """


class LocalCluster:
    """The cluster in the driver's own process, with its executors."""

    can_lose_machines = False

    def __init__(self, machines: int) -> None:
        self.url = f"local-cluster[{machines},1,1024]"

    def lose_machine(self, share: float) -> int:
        raise NotImplementedError


class Standalone:
    """A master and its workers, each with two cores.

    Args:
        home: SPARK_HOME.
        directory: Where they write their logs.
        machines: How many workers.
        local_directory: SPARK_LOCAL_DIRS of the executors.

    """

    can_lose_machines = True

    def __init__(
        self, home: Path, directory: Path, machines: int, local_directory: Path
    ) -> None:
        self._home = home
        self._directory = directory
        self._environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(local_directory),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_NO_DAEMONIZE": "1",
        }
        self._master = self._start(
            "master", _MASTER, *("--port", "0"), *("--webui-port", "0")
        )
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            self.url = self._await_url()
            for _ in range(machines):
                self._add_worker()
        except BaseException:
            self.close()
            raise

    def lose_machine(self, share: float) -> int:
        worker = self._workers.pop(int(share * len(self._workers)))
        worker.kill()
        worker.wait()
        self._add_worker()
        return worker.pid

    def close(self) -> None:
        """End all of it."""
        for process in (*self._workers, self._master):
            process.terminate()
        for process in (*self._workers, self._master):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _add_worker(self) -> None:
        name = f"worker-{time.monotonic_ns()}"
        arguments = ("--cores", "2", "--memory", "1536m", "--webui-port", "0")
        directory = self._directory / name
        self._workers.append(
            self._start(name, _WORKER, *arguments, "-d", str(directory), self.url)
        )

    def _start(
        self, name: str, class_name: str, *arguments: str
    ) -> subprocess.Popen[bytes]:
        program = str(self._home / "bin" / "spark-class")
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [program, class_name, "--host", "127.0.0.1", *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _await_url(self) -> str:
        log = self._directory / "master.log"
        end_s = time.monotonic() + _STARTS_S
        while time.monotonic() < end_s and self._master.poll() is None:
            found = _URL.search(log.read_text(errors="replace"))
            if found:
                return found[0]
            time.sleep(0.1)
        raise RuntimeError(f"the master did not start:\n{log.read_text()}")


@contextmanager
def small_disk(directory: Path, size_bytes: int) -> Iterator[bool]:
    """Make a directory a file system of this size; whether that is permitted.

    Only this process and its descendants see it, and it ends with them.
    """
    is_mounted = False
    with suppress(OSError, subprocess.CalledProcessError):
        _have_own_mounts()
        options = f"size={size_bytes}"
        _run("mount", "-t", "tmpfs", "-o", options, "sparkcache-chaos", str(directory))
        is_mounted = True
    try:
        yield is_mounted
    finally:
        if is_mounted:
            _run("umount", str(directory))


def _have_own_mounts() -> None:
    """Have this thread, and what it starts, see mounts that no other process sees.

    Among them is /dev/shm: what is left there is not that of others.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "sparkcache-chaos", "/dev/shm")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
