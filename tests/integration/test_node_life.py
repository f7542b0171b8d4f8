"""When a node starts and ends."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.integration.executor import Executor, digest, until
from tests.integration.nodes import RUNS, only_warning, processes


def test_a_node_ends_with_its_directory(executor: Executor) -> None:
    digest(executor.read())
    shutil.rmtree(executor.directory)
    until(lambda: not processes(executor), deadline_s=3)


def test_a_node_ends_with_its_jvm(executor: Executor) -> None:
    """The JVM is the ancestor of the task that is called `java`."""
    code = """
import pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text("java")
subprocess.run(sys.argv[1:], check=True)
sys.stdin.read()
"""
    task = executor.start_task()
    command = task.args
    task.communicate()
    os.kill(processes(executor)[0], signal.SIGKILL)
    until(lambda: not processes(executor))
    assert isinstance(command, list)
    jvm = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with jvm:
        assert jvm.stdout is not None
        assert jvm.stdout.readline()
        assert len(processes(executor)) == 2
        jvm.kill()
    until(lambda: not processes(executor), deadline_s=3)


def test_a_node_started_by_a_worker_with_little_memory_serves(
    executor: Executor, content: str
) -> None:
    """The node inherits the limit, which does not apply to unmapped shared memory."""
    limit = 2 << 30
    task = executor.start_task(
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    )
    out, errors = task.communicate()
    assert (out.strip(), errors) == (content, "")
    assert executor.metrics().requests == RUNS


def test_a_node_is_reached_however_long_its_path_is(
    executor: Executor, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = executor.directory / ("long" * 40)
    directory.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{directory},/nowhere")
    executor = replace(executor, directory=directory)
    assert digest(executor.read()) == content
    assert executor.metrics().requests == RUNS


def test_a_topic_whose_path_is_not_utf_8_is_read_without_the_node(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = executor.directory / os.fsdecode(b"not-utf-8-\xff")
    topic.symlink_to(executor.topic)
    executor = replace(executor, topic=topic)
    without = replace(executor.config, enabled=False)
    digest_without = digest(executor.read(config=without))
    assert digest(executor.read()) == digest_without == content
    assert "a name that is not UTF-8" in only_warning(caplog)
