"""The jars of the plugin and of the reader, in the directory of this file.

The wheel contains them; a checkout builds each on first use, from the sources in
`java`, with `javac` and pyspark's own jars. The build of the wheel runs this file too,
so it imports nothing of the package.

They are two, since Spark finds the class of the reader before the data source in Python
as soon as it is on the class path. The reader needs the plugin's jar beside its own.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

PLUGIN = "org.apache.spark.sparkcache.SparkCachePlugin"
READER = "sparkcache.DefaultSource"
JAR = Path(__file__).with_name("sparkcache.jar")
READER_JAR = Path(__file__).with_name("sparkcache_reader.jar")

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_SOURCES = Path(__file__).with_name("java")
_PAGE = Path(__file__).parents[1] / "ui" / "page.html"
_MESSAGES = Path(__file__).parents[1] / "node" / "messages.py"
_PACKAGE = "org/apache/spark/sparkcache"
_SERVICE = "META-INF/services/org.apache.spark.status.AppHistoryServerPlugin"
_SHORT_LIVED = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
_EPOCH = (1980, 1, 1, 0, 0, 0)

_log = logging.getLogger(__name__)


def plugin_jar() -> Path | None:
    """Return the plugin's jar; None if it is missing and cannot be built."""
    try:
        if _is_old(JAR, "ui"):
            build(JAR)
    except (OSError, subprocess.CalledProcessError) as error:
        _warn("the plugin for Spark's UI", error)
    return JAR if JAR.exists() else None


def reader_jar() -> Path | None:
    """Return the reader's jar; None if it is missing and cannot be built."""
    try:
        if _is_old(READER_JAR, "reader"):
            build_reader(READER_JAR)
    except (OSError, subprocess.CalledProcessError) as error:
        _warn("the reader in the JVM", error)
    return READER_JAR if READER_JAR.exists() else None


def build(jar: Path) -> None:
    """Compile the plugin into a jar; the same sources give the same bytes."""
    version = re.search(
        r"^PROTOCOL_VERSION = (\d+)", _MESSAGES.read_text("utf-8"), re.MULTILINE
    )
    assert version is not None
    others = {
        f"{_PACKAGE}/page.html": _PAGE.read_bytes(),
        f"{_PACKAGE}/protocol": version[1].encode(),
        _SERVICE: b"org.apache.spark.sparkcache.SparkCacheHistory\n",
    }
    _build(jar, sorted(_sources("ui")), "org", others)


def build_reader(jar: Path) -> None:
    """Compile the reader into a jar; the same sources give the same bytes."""
    sources = [*_sources("reader"), _SOURCES / "ui" / "NodeSocket.java"]
    _build(jar, sorted(sources), "sparkcache", {})


def _build(
    jar: Path, sources: list[Path], package: str, others: dict[str, bytes]
) -> None:
    """Compile sources; put the classes of a package, and other files, into a jar."""
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
        command += map(str, sources)
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted((classes / package).rglob("*.class")):
                _add(archive, str(path.relative_to(classes)), path.read_bytes())
            for name, content in others.items():
                _add(archive, name, content)
        made.replace(jar)


def _warn(what: str, error: Exception) -> None:
    _log.warning("%s was not built: %s %s", what, error, getattr(error, "stderr", ""))


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)


def _sources(directory: str) -> list[Path]:
    return list((_SOURCES / directory).glob("*.java"))


def _is_old(jar: Path, directory: str) -> bool:
    """Return whether a jar is missing or, in a checkout, older than its sources."""
    if not jar.exists():
        return True
    if not _PROJECT.exists():
        return False  # installed from a wheel: file times mean nothing
    sources = [*_sources(directory), _PAGE, _MESSAGES]
    return max(path.stat().st_mtime for path in sources) > jar.stat().st_mtime
