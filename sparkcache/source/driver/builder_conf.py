"""The configuration so far of a session that does not exist yet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def conf_value(builder: SparkSession.Builder, key: str) -> str:
    """Return a conf's value from the builder, spark-submit, or the defaults file."""
    options: dict[str, str] = getattr(builder, "_options", {})
    if key in options:
        return str(options[key])
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None:
        SparkContext._ensure_initialized()
        return SparkConf().get(key, "") or ""
    return _defaults().get(key, "")


def _defaults() -> dict[str, str]:
    """Read `spark-defaults.conf` as Spark reads it when it starts."""
    directory = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    try:
        text = Path(directory, "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines)
    return {
        pair[0]: pair[1]
        for pair in pairs
        if len(pair) == 2 and not pair[0].startswith("#")
    }
