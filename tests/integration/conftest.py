"""A topic, and an executor whose tasks read it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import leaks
from tests.integration.executor import Executor, digest, until
from tests.integration.nodes import CONFIG, write_topic

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ledgers in 6 blocks and 32 runs, shared by all tests."""
    directory = tmp_path_factory.mktemp("topic")
    write_topic(directory)
    return directory


@pytest.fixture(scope="session")
def content(topic: Path) -> str:
    """Digest of the topic, read without a cache."""
    config = replace(CONFIG, enabled=False)
    return digest(Executor(topic, topic, config).read())


@pytest.fixture
def executor(
    topic: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Executor]:
    """An executor whose directory is removed at the end, which ends its node."""
    directory = tmp_path / "executor"
    directory.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(directory))
    config = replace(CONFIG, **getattr(request, "param", {}))
    executor = Executor(directory, topic, config)
    yield executor
    shutil.rmtree(directory, ignore_errors=True)
    until(lambda: not leaks.processes_with(executor.marker))
