"""Configuration before a session exists, and errors of configure and install."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

import sparkcache
from sparkcache import ConfigError
from sparkcache.jvm.jar import JAR
from sparkcache.source.driver import session

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("master", "named", "expected"),
    [
        pytest.param("local[2]", None, sys.executable, id="on this machine: this one"),
        pytest.param(None, None, sys.executable, id="Spark's own default: this one"),
        pytest.param("local[2]", "/other", "/other", id="what the user names: that"),
        pytest.param("spark://a:7077", None, None, id="on others: what they have"),
    ],
)
def test_which_python_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    master: str | None,
    named: str | None,
    expected: str | None,
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "")  # so that monkeypatch restores it
    monkeypatch.delenv("PYSPARK_PYTHON")
    if named is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", named)
    builder = SparkSession.Builder()
    sparkcache.configure(builder if master is None else builder.master(master))
    assert os.environ.get("PYSPARK_PYTHON") == expected
    assert builder._options.get("spark.pyspark.python") == expected


def test_a_python_named_in_the_conf_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "/one")
    key = "spark.pyspark.python"
    builder = sparkcache.configure(SparkSession.Builder().config(key, "/other"))
    assert builder._options[key] == "/other"


def test_sockets_of_python_workers_that_are_switched_off_stay_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    key = "spark.python.unix.domain.socket.enabled"
    assert sparkcache.configure(SparkSession.Builder())._options[key] == "true"
    builder = SparkSession.Builder().config(key, "false")
    assert sparkcache.configure(builder)._options[key] == "false"


@pytest.mark.parametrize(
    ("master", "given", "expected"),
    [
        pytest.param("yarn", None, "/tmp", id="on YARN: a short path"),
        pytest.param("yarn", "/run", "/run", id="what the user names: that"),
        pytest.param("k8s://https://a", None, None, id="elsewhere: Spark's own"),
        pytest.param("local[2]", None, None, id="here: Spark's own"),
    ],
)
def test_where_the_sockets_of_python_workers_lie(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    given: str | None,
    expected: str | None,
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    key = "spark.python.unix.domain.socket.dir"
    builder = SparkSession.Builder().master(master)
    if given is not None:
        builder = builder.config(key, given)
    assert sparkcache.configure(builder)._options.get(key) == expected


class ClosedLoader:
    """The class loader of a JVM that takes no jars once it runs."""

    def loadClass(self, name: str) -> None:  # noqa: N802 - as in Java
        raise Py4JError(f"ClassNotFoundException: {name}")

    def addURL(self, url: object) -> None:  # noqa: N802
        raise Py4JError("Method addURL does not exist")


@pytest.mark.usefixtures("jdk")
def test_a_jvm_that_takes_no_jars_gets_no_plugin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway: Any = MagicMock()
    thread = gateway.jvm.java.lang.Thread.currentThread.return_value
    thread.getContextClassLoader.return_value = ClosedLoader()
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(session, "conf_value", lambda *_: "")
    options = sparkcache.configure(SparkSession.Builder())._options
    assert "spark.plugins" not in options
    assert "spark.jars" not in options
    assert f"start it with --jars {JAR}" in caplog.text


def test_configuring_what_is_no_builder() -> None:
    argument: Any = SparkSession
    with pytest.raises(ConfigError, match=r"configure\(SparkSession\.builder\)"):
        sparkcache.configure(argument)


def test_installing_what_is_no_configuration() -> None:
    argument: Any = {"max_bytes": 1 << 20}
    with pytest.raises(ConfigError, match=r"takes a CacheConfig, .* not a dict"):
        sparkcache.install(argument, argument)
