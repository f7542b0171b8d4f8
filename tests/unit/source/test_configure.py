"""Configuration before a session exists, and errors of configure and install."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import sparkcache
from sparkcache import ConfigError

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


def test_configuring_what_is_no_builder() -> None:
    argument: Any = SparkSession
    with pytest.raises(ConfigError, match=r"configure\(SparkSession\.builder\)"):
        sparkcache.configure(argument)


def test_installing_what_is_no_configuration() -> None:
    argument: Any = {"max_bytes": 1 << 20}
    with pytest.raises(ConfigError, match=r"takes a CacheConfig, .* not a dict"):
        sparkcache.install(argument, argument)
