"""Registration of a source under a name that Spark has already discovered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from sparkcache.source.active_session import active
from sparkcache.source.spark_version import has_spark

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_READER = "sparkcache.DefaultSource"
_NAME_BESIDE_READER = "sparkcache_installed"
_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python"


def name_of_installed(spark: SparkSession) -> str:
    """Return the name under which `install` registers the source in a session.

    If the reader's jar is there, Spark refuses to register another `sparkcache` beside
    its class of that name; the class asks for the source under this name first.
    """
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_READER)
    except Py4JJavaError:
        return "sparkcache"
    return _NAME_BESIDE_READER


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a source in a session, instead of the one that Spark has discovered.

    Spark 4.0 refuses that with DATA_SOURCE_ALREADY_EXISTS, so there the source is put
    into the session's map of discovered sources. `newSession()` makes another.
    """
    if has_spark("4.1"):
        with active(spark):  # Spark looks there for another source of this name
            spark.dataSource.register(source)
    else:
        _replace_discovered(spark, source)


def _replace_discovered(spark: SparkSession, source: type[DataSource]) -> None:
    from pyspark.sql.udf import _wrap_function

    jvm: Any = spark._jvm
    pickled = _wrap_function(spark.sparkContext, source)
    builder = getattr(jvm, f"{_SOURCE}.UserDefinedPythonDataSource")(pickled)
    manager: JavaObject = spark._jsparkSession.sessionState().dataSourceManager()
    manager.dataSourceExists(source.name())  # loads the map
    builders = manager.getClass().getDeclaredField("staticDataSourceBuilders")
    builders.setAccessible(True)
    builders.set(manager, builders.get(manager).updated(source.name(), builder))
