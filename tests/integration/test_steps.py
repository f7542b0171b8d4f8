"""A node or a loader that dies between two messages changes no result."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.executor import Executor, digest
from tests.stress.steps import STEPS, Steps

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.parametrize(
    "step", [step for step in STEPS if step.startswith(("node", "loader"))]
)
def test_at_a_step(
    step: str,
    executor: Executor,
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "steps"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    steps = Steps(directory)
    steps.arm(step, signal.SIGKILL)
    assert digest(executor.read(1)) == content
    (sent,) = steps.take()
    assert sent.step == step
    assert digest(executor.read(2)) == content
    assert executor.metrics().runs > 0


@pytest.mark.long
def test_the_starter_of_a_node_is_hit_only_if_it_is_a_worker(
    executor: Executor, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "steps"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    steps = Steps(directory)
    steps.arm("starter: node not ready", signal.SIGKILL)
    output, _ = executor.start_task().communicate()
    assert output.strip() == content
    assert steps.take() == []
