"""The processes of a cluster on this machine, by what they are for.

All are descendants of this process, which is the reaper of orphans: a node runs on when
the task that started it has ended.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from tests.integration.nodes import frozen, processes_memfd_bytes

_NODE = "-m sparkcache.node"
_DAEMON = "pyspark.daemon"
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class ClusterProcesses:
    """Process ids at one moment, in ascending order.

    Attributes:
        executors: The JVMs of the executors.
        workers: The Python workers of the executors.
        nodes: The loaders of each node, by node.

    """

    executors: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    nodes: dict[int, list[int]] = field(default_factory=dict)

    @property
    def loaders(self) -> list[int]:
        """The loaders of all nodes."""
        return [pid for loaders in self.nodes.values() for pid in loaders]

    @classmethod
    def now(cls) -> ClusterProcesses:
        """Look at the descendants of this process; reap those that have ended."""
        commands: dict[int, str] = {}
        parents: dict[int, int] = {}
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                parents[process.pid] = process.ppid()
                commands[process.pid] = " ".join(process.cmdline())
                if process.status() == psutil.STATUS_ZOMBIE:
                    _reap(process)
        found = cls()
        for pid in sorted(commands):
            command, parent = commands[pid], commands.get(parents[pid], "")
            if _EXECUTOR in command:
                found.executors.append(pid)
            elif _DAEMON in command and _DAEMON in parent:
                daemon = parents[pid]
                if _EXECUTOR in commands.get(parents.get(daemon, 0), ""):
                    found.workers.append(pid)
            elif _NODE in command and _NODE not in parent:
                found.nodes[pid] = [
                    child
                    for child in sorted(commands)
                    if parents[child] == pid and _NODE in commands[child]
                ]
        return found

    def memory_bytes(self, node: int, stopped: set[int]) -> int:
        """Return the shared memory of a node and its loaders at one moment.

        Args:
            node: The node's process id.
            stopped: Processes that are stopped already, and stay so.

        """
        pids = [node, *self.nodes[node]]
        with frozen([pid for pid in pids if pid not in stopped]):
            return processes_memfd_bytes(pids)


def _reap(process: psutil.Process) -> None:
    """Reap an orphan that has ended."""
    if process.ppid() == os.getpid():
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
