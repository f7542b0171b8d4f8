"""A standalone cluster of Spark on this machine, for tests and demos.

It is a master and its workers, each a process of its own, which the `spark-class` that
comes with pyspark starts. The workers start the executors.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark

if TYPE_CHECKING:
    from collections.abc import Mapping

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that end soon."""

HOST = "127.0.0.1"
_STARTS_S = 60.0
_ENDS_S = 10.0
_URL = re.compile(r"spark://[\w.]+:\d+")
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class Standalone:
    """A master and its workers, each of which stands for a machine.

    They inherit the environment of this process. At the end of a `with` block, or with
    `close`, they end, and with them their executors.

    Args:
        directory: Where logs and the directories of executors are written. It exists.
        machines: How many workers there are.
        cores: How many cores of each worker executors get.
        memory: How much memory of each worker the JVMs of executors get.
        local_directory: SPARK_LOCAL_DIRS of the executors; None for one in `directory`.

    Attributes:
        url: The `master` of an application that is to run on the cluster.
        can_lose_machines: That `lose_machine` works.

    Example:
        >>> with Standalone(Path(directory), machines=3) as cluster:
        ...     spark = SparkSession.builder.master(cluster.url).getOrCreate()
        ...     ...
        ...     spark.stop()

    """

    can_lose_machines = True

    def __init__(
        self,
        directory: Path,
        machines: int,
        *,
        cores: int = 2,
        memory: str = "1536m",
        local_directory: Path | None = None,
    ) -> None:
        self._directory = directory
        self._home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        self._resources = ("--cores", str(cores), "--memory", memory)
        self._environment = self._variables(local_directory or directory / "local")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        try:
            self._master = self._start(
                "master", _MASTER, *("--port", "0"), *("--webui-port", "0")
            )
            self.url = self._await_url(self._master)
            for _ in range(machines):
                self._add_worker()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Standalone({len(self._workers)} workers in {self._directory})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lose_machine(self, share: float) -> int:
        """Kill a worker, and start another; return the process id of the killed one.

        Args:
            share: Which one, from 0 to 1.

        """
        worker = self._workers.pop(int(share * len(self._workers)))
        worker.kill()
        worker.wait()
        self._add_worker()
        return worker.pid

    def close(self) -> None:
        """End all of it."""
        processes = [*self._workers, *filter(None, [self._master])]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _variables(self, local_directory: Path) -> Mapping[str, str]:
        return os.environ | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_DIRS": str(local_directory),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_NO_DAEMONIZE": "1",
        }

    def _add_worker(self) -> None:
        name = f"worker-{time.monotonic_ns()}"
        of_its_own = ("--webui-port", "0", "-d", str(self._directory / name))
        self._workers.append(
            self._start(name, _WORKER, *self._resources, *of_its_own, self.url)
        )

    def _start(
        self, name: str, class_name: str, *arguments: str
    ) -> subprocess.Popen[bytes]:
        program = str(self._home / "bin" / "spark-class")
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - of the installed Spark
                [program, class_name, "--host", HOST, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _await_url(self, master: subprocess.Popen[bytes]) -> str:
        log = self._directory / "master.log"
        end_s = time.monotonic() + _STARTS_S
        while time.monotonic() < end_s and master.poll() is None:
            found = _URL.search(log.read_text(errors="replace"))
            if found:
                return found[0]
            time.sleep(0.1)
        raise RuntimeError(f"the master did not start:\n{log.read_text()}")
