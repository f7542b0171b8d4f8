"""The jars of delta-spark, from Maven Central or the machine's own repository of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# The version on PyPI may be ahead of what there is at Maven Central.
ARTIFACT, VERSION = "delta-spark_4.2_2.13", "4.4.0"
COORDINATES = f"io.delta:{ARTIFACT}:{VERSION}"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_TIMEOUT_S = 300
_POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sparkcache</groupId><artifactId>tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId>
      <artifactId>{ARTIFACT}</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class JarsMissingError(Exception):
    """The jars cannot be had; says why."""


def require_jars(directory: Path) -> list[Path]:
    """Return the jars. Where they cannot be had, skip; with CI=true, fail."""
    try:
        return fetch_jars(directory)
    except JarsMissingError as error:
        reason = f"{COORDINATES} cannot be had: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def fetch_jars(directory: Path) -> list[Path]:
    """Have Maven put the jars into a directory. Raises JarsMissingError."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissingError("there is no mvn")
    directory.mkdir()
    (directory / "pom.xml").write_text(_POM)
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        f"{_PLUGIN}:copy-dependencies",
        "-DincludeScope=runtime",
        "-DincludeGroupIds=io.delta,io.unitycatalog",
        f"-DoutputDirectory={directory}",
    ]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsMissingError(f"mvn took more than {_TIMEOUT_S} s") from error
    if done.returncode:
        problems = [line for line in done.stdout.splitlines() if "[ERROR]" in line]
        raise JarsMissingError(f"mvn says: {(problems or ['nothing'])[0]}")
    return sorted(directory.glob("*.jar"))
