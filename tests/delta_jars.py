"""The jars of delta-spark, from Maven Central or the local Maven repository."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.needs import lacks

if TYPE_CHECKING:
    from pathlib import Path

# The version on PyPI may be newer than the newest one at Maven Central.
_SPARK = ".".join(pyspark.__version__.split(".")[:2])
COORDINATES = f"io.delta:delta-spark_{_SPARK}_2.13:4.4.0"
SPARKS = ("4.0", "4.1", "4.2")
# The version of Hadoop that Spark 4.2 uses, and the version of Amazon's SDK that this
# Hadoop uses, without the bundle of all its parts, which is thirty times as large.
_SDK = "software.amazon.awssdk"
S3A = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(f"{_SDK}:{part}:2.35.4" for part in ("s3", "s3-transfer-manager", "sts")),
)
_GROUPS = (
    "io.delta",
    "io.unitycatalog",
    "org.apache.hadoop",
    "org.apache.httpcomponents",
    "org.reactivestreams",
    _SDK,
    "software.amazon.eventstream",
    "software.amazon.s3.analyticsaccelerator",
)
_OF_SPARK = "hadoop-client-api,hadoop-client-runtime"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_TIMEOUT_S = 300
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sparkcache</groupId><artifactId>tests</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion>
        <groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId>
      </exclusion></exclusions>
    </dependency>"""


class JarsMissingError(Exception):
    """The jars are not available; the message has the reason."""


def require_jars(directory: Path) -> list[Path]:
    """Return the jars. If they are not available, skip; with CI=true, fail.

    Skip for a Spark version without a jar of Delta: jars for others hang in reads.
    """
    if _SPARK not in SPARKS:
        pytest.skip(f"Delta has no jar for Spark {_SPARK}, only for {SPARKS}")
    try:
        return fetch_jars(directory)
    except JarsMissingError as error:
        lacks(f"{COORDINATES} is not available: {error}")


def fetch_jars(directory: Path, *coordinates: str) -> list[Path]:
    """Let Maven copy jars, by default those of delta-spark, into a new directory.

    Raises JarsMissingError.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissingError("there is no mvn")
    directory.mkdir()
    wanted = [artifact.split(":") for artifact in coordinates or [COORDINATES]]
    dependencies = "".join(_DEPENDENCY.format(*parts) for parts in wanted)
    (directory / "pom.xml").write_text(_POM.format(dependencies))
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        f"{_PLUGIN}:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DincludeGroupIds={','.join(_GROUPS)}",
        f"-DexcludeArtifactIds={_OF_SPARK}",
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
