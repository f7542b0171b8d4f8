"""Registering a source under a name that Spark has found by itself already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkcache.source.spark_version import has_spark

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python"


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a source in a session, in the place of the one that Spark has found.

    Spark 4.0 refuses that: DATA_SOURCE_ALREADY_EXISTS. There the session's own map of
    found sources is given the new one. A session made by `newSession()` has its own.
    """
    if has_spark("4.1"):
        spark.dataSource.register(source)
    else:
        _replace_found(spark, source)


def _replace_found(spark: SparkSession, source: type[DataSource]) -> None:
    from pyspark.sql.udf import _wrap_function

    jvm: Any = spark._jvm
    pickled = _wrap_function(spark.sparkContext, source)
    builder = getattr(jvm, f"{_SOURCE}.UserDefinedPythonDataSource")(pickled)
    manager: JavaObject = spark._jsparkSession.sessionState().dataSourceManager()
    manager.dataSourceExists(source.name())  # which loads the map
    found = manager.getClass().getDeclaredField("staticDataSourceBuilders")
    found.setAccessible(True)
    found.set(manager, found.get(manager).updated(source.name(), builder))
