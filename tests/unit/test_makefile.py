"""Errors of `make` without Python or Java, and the Python that it selects."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A path with only a shell on it."""
    shell = shutil.which("sh")
    assert shell is not None
    (tmp_path / "sh").symlink_to(shell)
    return tmp_path


def make(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    assert program is not None
    return subprocess.run(
        [program, "--no-print-directory", *arguments],
        cwd=ROOT,
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_without_python_one_line_says_what_to_install(bare: Path) -> None:
    done = make(bare, "python")
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "Makefile" not in line]
    assert len(lines) == 1
    assert "Python 3.11, 3.12 or 3.13 with its venv module" in lines[0]
    assert "python3-venv" in lines[0]


def test_a_python_without_its_venv_module_is_not_suitable(bare: Path) -> None:
    script(bare / "python3", "exit 1")
    done = make(bare, "python")
    assert done.returncode == 2
    assert "python3-venv" in done.stderr


def test_the_first_suitable_python_is_used(bare: Path) -> None:
    script(bare / "python3", "exit 1")
    script(bare / "python3.12", f'exec {sys.executable} "$@"')
    assert make(bare, "python").returncode == 0
    assert "python3.12 -m venv" in make(bare, "-n", "-B", "venv").stdout


def test_without_java_one_line_says_what_to_install(bare: Path) -> None:
    done = make(bare, "java")
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "Makefile" not in line]
    assert len(lines) == 1
    assert "JDK 17 or 21" in lines[0]


def test_every_version_is_pinned_and_no_address_is_named() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        requirement = line.partition(" ;")[0]
        assert requirement.count("==") == 1, line
        assert "://" not in line
