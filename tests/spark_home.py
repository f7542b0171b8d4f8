"""Home of Spark with which applications and their Python processes start faster.

Spark makes Python processes import pyspark from a zip, which each compiles again.
Without the zip they import the same modules as installed and compiled by pip: 0.5 s of
a core instead of 1.3 s, for every worker and every planner that a test needs.

    python -m tests.spark_home DIRECTORY

makes such a home and an archive of the classes that Spark has loaded when it has run a
few queries (class data sharing). A JVM that maps the archive does not parse and verify
these classes: it runs a first query after 7 s of a core instead of 13 s. An archive of
another Java or of other jars is ignored by the JVM.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Test sessions are too short for an optimizing compiler to pay off."""

OF_ENVIRONMENT = Path(sys.prefix) / "spark-home"
"""Where `make` makes the home, with the archive: in the environment of this Python."""

_ARCHIVE = "classes.jsa"
_QUERIES = Path(__file__).with_name("spark_queries.py")
_LIMIT_S = 300


def link(directory: Path) -> None:
    """Fill an empty directory with links to the installed files except the zip."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for path in Path(spec.origin).parent.iterdir():
        if path.name not in ("python", "work"):
            (directory / path.name).symlink_to(path)


def has_archive(home: Path) -> bool:
    """Return whether a home of Spark has an archive of classes."""
    return (home / _ARCHIVE).exists()


def jvm_options(home: Path) -> str:
    """Return the options for the JVMs of tests with a home of Spark."""
    if not has_archive(home):
        return SHORT_LIVED_JVM
    return f'{SHORT_LIVED_JVM} -XX:SharedArchiveFile="{home / _ARCHIVE}"'


def make(home: Path) -> None:
    """Make a home with an archive, which is there only when it is complete."""
    home.mkdir(parents=True, exist_ok=True)
    for path in home.iterdir():
        if path.is_symlink() or path.name.startswith(_ARCHIVE):
            path.unlink()
    link(home)
    unfinished = home / f"{_ARCHIVE}.{os.getpid()}"
    options = f"{SHORT_LIVED_JVM} -XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory(prefix="spark-home-") as directory:
        subprocess.run(
            [sys.executable, _QUERIES, directory],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_S,
            env=os.environ
            | {
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_HOME": str(home),
                "SPARK_SUBMIT_OPTS": options,
            },
        )
    unfinished.rename(home / _ARCHIVE)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
