"""Without the jars of delta-spark: which tests are skipped, and that CI fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkcache.source.spark_version import has_spark
from tests.delta_jars import COORDINATES, SPARKS, JarsMissingError, fetch_jars

pytestmark = pytest.mark.skipif(
    has_spark("4.3"), reason=f"delta-spark is there for Spark {', '.join(SPARKS)}"
)

HERE = Path(__file__).parent
UNREACHABLE = """\
<settings>
  <mirrors><mirror>
    <id>nowhere</id><mirrorOf>*</mirrorOf><url>http://127.0.0.1:9/</url>
  </mirror></mirrors>
</settings>
"""


def outcome(**environment: str) -> tuple[str, dict[str, int]]:
    """Run those tests where there is no Maven; return what is said, and counts."""
    given = {name: value for name, value in os.environ.items() if name != "CI"}
    tests = HERE / "test_delta_spark.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", str(tests)],
        cwd=HERE.parent.parent,
        env={**given, "PATH": str(Path(sys.executable).parent), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1]
    counts = re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])
    return done.stdout, {kind.rstrip("s"): int(count) for count, kind in counts}


def test_they_are_skipped_by_name_with_the_reason() -> None:
    said, counts = outcome()
    assert counts.keys() == {"skipped"}
    assert counts["skipped"] > 10
    assert f"{COORDINATES} is not available: there is no mvn" in said
    assert "test_delta_spark.py" in said


def test_they_fail_in_ci() -> None:
    said, counts = outcome(CI="true")
    assert counts.keys() == {"error"}
    assert counts["error"] > 10
    assert f"{COORDINATES} is not available: there is no mvn" in said


@pytest.mark.skipif(shutil.which("mvn") is None, reason="there is no mvn")
def test_a_repository_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(UNREACHABLE)
    monkeypatch.setenv("MAVEN_OPTS", f"-Duser.home={tmp_path}")
    with pytest.raises(JarsMissingError, match=r"mvn says: .*nowhere.*127\.0\.0\.1"):
        fetch_jars(tmp_path / "jars")
    assert not list((tmp_path / "jars").glob("*.jar"))
