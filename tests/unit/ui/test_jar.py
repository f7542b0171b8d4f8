"""The jars for Spark's JVM, and their entries in the configuration of a session."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import sparkcache
from sparkcache import ConfigError
from sparkcache.jvm import jar
from sparkcache.source.driver import session
from sparkcache.source.driver.builder_conf import conf_value
from tests.needs import SPARK_4_1

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.usefixtures("jdk")
def test_the_jar_is_the_same_for_the_same_sources(tmp_path: Path) -> None:
    made = tmp_path / "made.jar"
    jar.build(made)
    installed = jar.plugin_jar()
    assert installed is not None
    assert made.read_bytes() == installed.read_bytes()
    with zipfile.ZipFile(made) as archive:
        names = set(archive.namelist())
    assert "org/apache/spark/sparkcache/SparkCachePlugin.class" in names
    assert "org/apache/spark/sparkcache/page.html" in names
    assert "META-INF/services/org.apache.spark.status.AppHistoryServerPlugin" in names
    assert {path.name for path in tmp_path.iterdir()} == {"made.jar"}
    assert not any(name.startswith("sparkcache/") for name in names)


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
def test_the_jar_of_the_reader_is_the_same_for_the_same_sources(tmp_path: Path) -> None:
    made = tmp_path / "made.jar"
    jar.build_reader(made)
    installed = jar.reader_jar()
    assert installed is not None
    assert made.read_bytes() == installed.read_bytes()
    with zipfile.ZipFile(made) as archive:
        names = set(archive.namelist())
    assert "sparkcache/DefaultSource.class" in names
    assert all(name.startswith("sparkcache/") for name in names)
    assert {path.name for path in tmp_path.iterdir()} == {"made.jar"}


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the JVM of other tests: builders have the confs of its session."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_without_a_jdk_there_is_no_jar_and_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jar, "JAR", tmp_path / "none.jar")
    monkeypatch.setattr(jar, "READER_JAR", tmp_path / "none_of_the_reader.jar")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert jar.plugin_jar() is None
    assert jar.reader_jar() is None
    assert "javac" in caplog.text
    options = sparkcache.configure(SparkSession.Builder())._options
    assert "spark.plugins" not in options
    assert "spark.jars" not in options


@pytest.mark.usefixtures("jdk")
@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_jar_older_than_its_sources_is_rebuilt_in_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_checkout: bool
) -> None:
    made = tmp_path / "old.jar"
    made.write_bytes(b"old")
    os.utime(made, (0, 0))
    monkeypatch.setattr(jar, "JAR", made)
    monkeypatch.setattr(jar, "_PROJECT", tmp_path / ("." if is_checkout else "none"))
    assert jar.plugin_jar() == made
    assert (made.read_bytes() == b"old") is not is_checkout


@pytest.mark.usefixtures("jdk")
def test_what_was_configured_before_stays() -> None:
    builder = SparkSession.Builder().config("spark.plugins", "a.B")
    builder = builder.config("spark.jars", "/x.jar,/y.jar")
    for _ in range(2):
        builder = sparkcache.configure(builder)
        assert builder._options["spark.plugins"] == f"a.B,{jar.PLUGIN}"
        jars = builder._options["spark.jars"].split(",")
        assert jars[:3] == ["/x.jar", "/y.jar", str(jar.JAR)]


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
@pytest.mark.parametrize("asked", [None, True, False])
def test_the_reader_is_added_unless_it_is_not_wanted(asked: bool | None) -> None:
    builder = SparkSession.Builder().config("spark.jars", "/x.jar")
    wanted = [jar.JAR] if asked is False else [jar.JAR, jar.READER_JAR]
    for _ in range(2):
        builder = sparkcache.configure(builder, jvm_reader=asked)
        jars = builder._options["spark.jars"]
        assert jars == ",".join(map(str, ["/x.jar", *wanted]))


@pytest.mark.usefixtures("jdk")
@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [
        ("4.1.4", None, None),
        ("4.2.0", None, "false"),
        ("4.2.0", "true", "true"),
        ("4.2.1", None, None),
    ],
)
def test_a_udf_on_columns_is_kept_from_waiting_forever(
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    given: str | None,
    expected: str | None,
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.setattr(session, "reader_jar", lambda: jar.READER_JAR)
    key = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
    builder = SparkSession.Builder()
    if given is not None:
        builder = builder.config(key, given)
    builder = sparkcache.configure(builder, jvm_reader=True)
    assert builder._options.get(key) == expected


def test_the_reader_needs_spark_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.3")
    with pytest.raises(ConfigError, match=r"jvm_reader=True.* needs Spark 4\.1"):
        sparkcache.configure(SparkSession.Builder(), jvm_reader=True)
    options = sparkcache.configure(SparkSession.Builder())._options
    assert str(jar.READER_JAR) not in options.get("spark.jars", "")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("spark.jars /a.jar,/b.jar", "/a.jar,/b.jar"),
        ("spark.jars=/a.jar", "/a.jar"),
        ("  spark.jars\t/a.jar  ", "/a.jar"),
        ("# spark.jars /a.jar", ""),
        ("spark.jars", ""),
    ],
)
def test_the_file_of_defaults_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, value: str
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(f"\nspark.app.name x\n{line}\n")
    assert conf_value(SparkSession.Builder(), "spark.jars") == value


def test_without_a_file_a_conf_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "nowhere"))
    assert conf_value(SparkSession.Builder(), "spark.jars") == ""
