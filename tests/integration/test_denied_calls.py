"""Nodes where an old kernel, or a sandbox, denies system calls."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from tests.integration.executor import until
from tests.integration.nodes import RUNS, processes
from tests.seccomp import MEMFD_CREATE, PIDFD_OPEN, deny, needs_numbers

if TYPE_CHECKING:
    from tests.integration.executor import Executor

TASKS = 3
JVM = """
import logging, os, pathlib, sys
import msgspec
from sparkcache.config import CacheConfig
from tests.integration.executor import Executor, digest

pathlib.Path("/proc/self/comm").write_text("java")
logging.basicConfig(level=logging.WARNING)
directory, topic, config, tasks = sys.argv[1:]
config = msgspec.json.decode(config, type=CacheConfig)
executor = Executor(pathlib.Path(directory), pathlib.Path(topic), config)
if not os.fork():
    for stage in range(int(tasks)):
        print(digest(executor.read(stage)), flush=True)
    os._exit(0)
os.wait()
sys.stdin.read()
"""


def jvm_without(call: int, error: int, executor: Executor) -> subprocess.Popen[str]:
    """Start a JVM with a worker that reads, neither of which can make a system call."""
    config = msgspec.json.encode(executor.config).decode()
    command = [sys.executable, "-c", JVM, executor.directory, executor.topic, config]
    return subprocess.Popen(
        [*map(str, command), str(TASKS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        preexec_fn=lambda: deny(call, error),
    )


def lines(jvm: subprocess.Popen[str]) -> list[str]:
    assert jvm.stdout is not None
    return [jvm.stdout.readline().strip() for _ in range(TASKS)]


@needs_numbers
def test_without_pidfds_a_node_lives_as_long_as_its_jvm(
    executor: Executor, content: str
) -> None:
    with jvm_without(PIDFD_OPEN, errno.ENOSYS, executor) as jvm:
        assert lines(jvm) == [content] * TASKS
        assert len(processes(executor)) == 2
        assert executor.metrics().requests == TASKS * RUNS
        jvm.kill()
        assert jvm.stderr is not None
        assert jvm.stderr.read() == ""
    until(lambda: not processes(executor), deadline_s=3)


@needs_numbers
def test_without_shared_memory_no_node_runs_which_is_said_once(
    executor: Executor, content: str
) -> None:
    with jvm_without(MEMFD_CREATE, errno.EPERM, executor) as jvm:
        assert lines(jvm) == [content] * TASKS
        assert not processes(executor)
        jvm.kill()
        assert jvm.stderr is not None
        [warning] = jvm.stderr.read().splitlines()
    assert "memfd_create" in warning
    assert "Operation not permitted" in warning
