"""The jar of the Spark plugin, in the directory of this file.

The wheel contains it; a checkout builds it on first use, from the sources in `java`,
with `javac` and pyspark's own jars. The build of the wheel runs this file too, so it
imports nothing of the package.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

PLUGIN = "org.apache.spark.sparkcache.SparkCachePlugin"
JAR = Path(__file__).with_name("sparkcache.jar")

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_SOURCES = Path(__file__).with_name("java")
_PACKAGE = "org/apache/spark/sparkcache"
_SERVICE = "META-INF/services/org.apache.spark.status.AppHistoryServerPlugin"
_SHORT_LIVED = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
_EPOCH = (1980, 1, 1, 0, 0, 0)

_log = logging.getLogger(__name__)


def plugin_jar() -> Path | None:
    """Return the jar; None if it is missing and cannot be built."""
    try:
        if _is_old():
            build(JAR)
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", "")
        _log.warning("the plugin for Spark's UI was not built: %s %s", error, output)
    return JAR if JAR.exists() else None


def build(jar: Path) -> None:
    """Compile the sources into a jar; the same sources give the same bytes."""
    javac = shutil.which("javac")
    spark = find_spec("pyspark")
    if javac is None or spark is None or spark.origin is None:
        raise FileNotFoundError(
            "javac (of a JDK) and pyspark are needed to build the jar"
        )
    with tempfile.TemporaryDirectory(dir=jar.parent) as directory:
        classes, made = Path(directory) / "classes", Path(directory) / "made.jar"
        command = [javac, *_SHORT_LIVED, "--release", "17", "-nowarn", "-g:none"]
        command += ["-Xlint:-options"]
        command += ["-cp", f"{Path(spark.origin).parent}/jars/*", "-d", str(classes)]
        command += map(str, sorted(_SOURCES.glob("*.java")))
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(classes.rglob("*.class")):
                _add(archive, str(path.relative_to(classes)), path.read_bytes())
            page = _SOURCES.with_name("page.html").read_bytes()
            _add(archive, f"{_PACKAGE}/page.html", page)
            _add(archive, _SERVICE, b"org.apache.spark.sparkcache.SparkCacheHistory\n")
        made.replace(jar)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)


def _is_old() -> bool:
    """Return whether the jar is missing or, in a checkout, older than its sources."""
    if not JAR.exists():
        return True
    if not _PROJECT.exists():
        return False  # installed from a wheel: file times mean nothing
    sources = [*_SOURCES.glob("*.java"), _SOURCES.with_name("page.html")]
    return max(path.stat().st_mtime for path in sources) > JAR.stat().st_mtime
