"""`examples/fan_out.py`, with a smaller topic.

Needs the jars of delta-spark. Where they cannot be had it is skipped; with CI=true in
the environment it fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOWHERE = """\
<ivysettings>
  <settings defaultResolver="nowhere"/>
  <resolvers>
    <filesystem name="nowhere"><artifact pattern="{}/[artifact].[ext]"/></filesystem>
  </resolvers>
</ivysettings>
"""


def fan_out(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the example."""
    return subprocess.run(
        [sys.executable, "examples/fan_out.py", *options],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.spark
def test_fan_out(delta_jars: list[Path]) -> None:
    jars = ",".join(map(str, delta_jars))
    done = fan_out("--mib", "8", "--latency-ms", "0", "--warm-ups", "0", "--jars", jars)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *shown, last = done.stdout.splitlines()
    assert any("the same rows" in line for line in shown)
    found = json.loads(last)
    assert found["orders"] > 8_000
    assert found["rows"] == {"archive": found["orders"], "fraud": 10, "billing": 400}
    assert found["rows_equal"] is True
    assert found["topic_bytes"] > 8 << 20
    assert found["bytes_without"] == 3 * found["topic_bytes"]
    assert found["bytes_with"] == found["topic_bytes"]
    assert [job["bytes"] for job in found["with"][1:]] == [0, 0]
    assert found["archive_orders"] == found["orders"]
    assert found["archive_asked_bytes"] == 2 * found["archive_read_bytes"] > 0


def test_fan_out_without_the_jars(tmp_path: Path) -> None:
    pytest.importorskip("delta.pip_utils", reason="delta-spark is not installed")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(NOWHERE.format(tmp_path))
    conf = f"spark.jars.ivySettings {settings}\nspark.jars.ivy {tmp_path}/ivy\n"
    (tmp_path / "spark-defaults.conf").write_text(conf)
    done = fan_out(SPARK_CONF_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "could not fetch the jars of Delta" in done.stderr
    assert "io.delta#delta-spark_" in done.stderr
    assert "--jars" in done.stderr
    assert "~/.m2/repository may have" in done.stderr
