"""Preparation of a session: before it is created, and after."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

import pyspark

from sparkcache.config import DECIDES_CONF, CacheConfig, NodeConfig, settings_of
from sparkcache.errors import ConfigError
from sparkcache.jvm.jar import PLUGIN, READER, plugin_jar, reader_jar
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.driver.broadcast import BroadcastRef
from sparkcache.source.driver.builder_conf import conf_value
from sparkcache.source.driver.class_path import add_to_driver
from sparkcache.source.driver.planner_progress import listen_once
from sparkcache.source.driver.registration import name_of_installed, register
from sparkcache.source.spark_version import has_spark, require_spark
from sparkcache.source.streaming.query_listener import QueryListener

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_STATIC_CONFS = {
    # TCP on loopback delays each task by about 40 ms.
    "spark.python.unix.domain.socket.enabled": "true",
}
_SOCKETS = "spark.python.unix.domain.socket.dir"
_PYTHON = "spark.pyspark.python"
_COLUMNS_TO_UDFS = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


def configure(
    builder: SparkSession.Builder, *, jvm_reader: bool | None = None
) -> SparkSession.Builder:
    """Set the confs that must be set before a session exists; return the builder.

    sparkcache works without them; with them, tasks start faster and the UI has a tab.
    With a local master, tasks run this Python, unless PYSPARK_PYTHON names another.

    Args:
        builder: The builder of a session.
        jvm_reader: Whether scans are read in Spark's JVM where they can be: once the
            topic is cached, that is about twice as fast as through a Python worker.
            Streams are read in Python. Needs Spark 4.1 or later; by default it is
            used from that version on.

    Raises:
        ConfigError: The first argument is not a builder, or Spark is too old.

    """
    if not hasattr(builder, "getOrCreate"):
        raise ConfigError(
            "configure() takes the builder of a session, as in "
            "configure(SparkSession.builder).getOrCreate(), not a "
            f"{type(builder).__name__}"
        )
    builder = _name_sockets(_name_python(builder))
    for key, value in _STATIC_CONFS.items():
        if not conf_value(builder, key):
            builder = builder.config(key, value)
    if jvm_reader:
        require_spark("4.1", "the reader in the JVM (jvm_reader=True)")
    elif jvm_reader is None:
        jvm_reader = has_spark("4.1")
    jar = plugin_jar()
    if jar is not None and _is_loadable(jar, PLUGIN):
        builder = _add(builder, "spark.plugins", PLUGIN)
        builder = _add(builder, "spark.jars", str(jar))
        if jvm_reader:
            builder = _add_reader(builder)
    return builder


def _add_reader(builder: SparkSession.Builder) -> SparkSession.Builder:
    jar = reader_jar()
    if jar is None or not _is_loadable(jar, READER):
        return builder
    if pyspark.__version__ == "4.2.0" and not conf_value(builder, _COLUMNS_TO_UDFS):
        # SPARK-58241: a udf on Arrow columns waits forever.
        builder = builder.config(_COLUMNS_TO_UDFS, "false")
    return _add(builder, "spark.jars", str(jar))


def _is_loadable(jar: Path, class_name: str) -> bool:
    """Return whether the driver can load a class; log a warning if it cannot.

    A session whose plugin cannot be loaded does not start.
    """
    if add_to_driver(jar, class_name):
        return True
    _log.warning(
        "configure(): the JVM of this driver runs already and takes no more jars; to "
        "use %s, start it with --jars %s",
        jar.name,
        jar,
    )
    return False


def _add(builder: SparkSession.Builder, key: str, value: str) -> SparkSession.Builder:
    """Add a value to a conf with values between commas."""
    values = [name for name in conf_value(builder, key).split(",") if name]
    if value in values:
        return builder
    return builder.config(key, ",".join([*values, value]))


def _name_python(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Have Spark run this Python in tasks if its master is local.

    By default Spark runs the `python3` of the path. If that is another Python, it lacks
    this package, and Spark reports that it cannot find the data source.

    PySpark takes the Python of tasks from this process; the plugin, from the conf.
    """
    master = conf_value(builder, "spark.master") or "local[*]"  # spark-submit's default
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    named = os.environ.get("PYSPARK_PYTHON")
    if named and not conf_value(builder, _PYTHON):
        builder = builder.config(_PYTHON, named)
    return builder


def _name_sockets(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Have Python workers on YARN listen in a directory whose path is short enough.

    By default they listen in the JVM's temporary directory. YARN makes that a directory
    of the container, whose path is longer than that of a socket may be.
    """
    if conf_value(builder, "spark.master") == "yarn" and not conf_value(
        builder, _SOCKETS
    ):
        builder = builder.config(_SOCKETS, "/tmp")  # noqa: S108 - of no fixed name
    return builder


def install(spark: SparkSession, config: CacheConfig | None = None) -> None:
    """Register the source in a session, with a configuration for it.

    A broadcast variable carries the configuration, storage settings included, so the
    process that plans a query knows it too. It is also set in the session's conf, which
    Spark ships with every task: so it reaches scans that were loaded before, and
    `spark.conf.set("spark.sparkcache.maxBytes", "2g")` can change a setting later.

    An application has one node an executor. If it has several sessions, the one that
    is installed first decides the settings of the nodes, such as `maxBytes` and
    `policy`. Installing another with other values logs a warning, and these have no
    effect.

    The progress and the end of every streaming query of the session are reported to the
    nodes. In a terminal or a notebook, a progress bar shows planning that takes long.

    Args:
        spark: The session.
        config: The whole configuration: settings that it does not name have their
            defaults, whatever the session's conf or a conf file say. If None, the
            session's conf, the conf file and the defaults apply.

    Raises:
        ConfigError: A conf has a wrong value, or `config` is not a CacheConfig.

    """
    if not isinstance(config, CacheConfig | None):
        raise ConfigError(
            "install() takes a CacheConfig, such as CacheConfig(max_bytes=1 << 30), "
            f"not a {type(config).__name__}"
        )
    if config is None:
        config = CacheConfig.resolve(conf=dict(spark.conf.getAll))
    ref = BroadcastRef(spark.sparkContext, config)
    directory = listen_once()
    source_name = name_of_installed(spark)

    class Installed(SparkCacheSource):
        installed = ref
        progress_directory = directory

        @classmethod
        def name(cls) -> str:
            return source_name

    register(spark, Installed)
    for key, value in config.to_conf().items():
        spark.conf.set(key, value)
    _decide(spark, config.node)
    _listen(spark)


_deciding: WeakKeyDictionary[SparkContext, NodeConfig] = WeakKeyDictionary()


def _decide(spark: SparkSession, config: NodeConfig) -> None:
    """Have the first session of an application decide the settings of its nodes."""
    decided = _deciding.get(spark.sparkContext)
    if decided is None or spark.conf.get(DECIDES_CONF, "") == "true":
        _deciding[spark.sparkContext] = config
        spark.conf.set(DECIDES_CONF, "true")
        return
    others = [
        f"{spec.option}={spec.show(held)}, not {spec.show(given)}"
        for spec in settings_of(NodeConfig)
        if (held := getattr(decided, spec.name))
        != (given := getattr(config, spec.name))
    ]
    if others:
        _log.warning(
            "install(): another session of this application was installed first and "
            "decides the settings of the nodes: %s",
            "; ".join(others),
        )


_listening: WeakSet[SparkSession] = WeakSet()


def _listen(spark: SparkSession) -> None:
    """Add the listener that reports streaming queries, once for each session."""
    if spark not in _listening:
        _listening.add(spark)
        spark.streams.addListener(QueryListener(spark))
