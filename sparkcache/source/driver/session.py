"""Preparing a session: before it exists, and afterwards."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

from sparkcache.config import CacheConfig
from sparkcache.errors import ConfigError
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.driver.broadcast import BroadcastRef
from sparkcache.source.driver.builder_conf import conf_value
from sparkcache.source.driver.planner_progress import listen_once
from sparkcache.source.driver.registration import register
from sparkcache.source.streaming.query_listener import QueryListener
from sparkcache.ui.jar import PLUGIN, plugin_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATIC_CONFS = {
    # Saves a delay of about 40 ms for each task that TCP on loopback has.
    "spark.python.unix.domain.socket.enabled": "true",
}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set what only a session that does not exist yet can be told; return it.

    sparkcache works without; with it, tasks begin faster, and the UI has a tab. On one
    machine Spark starts this Python for them, unless PYSPARK_PYTHON names another.

    Raises ConfigError if it is given a session.
    """
    if not hasattr(builder, "getOrCreate"):
        raise ConfigError(
            "configure() takes what a session is made with, as in "
            "configure(SparkSession.builder).getOrCreate(), not a "
            f"{type(builder).__name__}"
        )
    _name_python(builder)
    for key, value in _STATIC_CONFS.items():
        builder = builder.config(key, value)
    jar = plugin_jar()
    if jar is not None:
        for key, value in (("spark.plugins", PLUGIN), ("spark.jars", str(jar))):
            values = [one for one in conf_value(builder, key).split(",") if one]
            if value not in values:
                builder = builder.config(key, ",".join([*values, value]))
    return builder


def _name_python(builder: SparkSession.Builder) -> None:
    """Have Spark start this Python where it runs on this machine alone.

    Else it is the `python3` of the path: where that is not this one, it does not know
    this package, and Spark says that there is no such data source.
    """
    master = conf_value(builder, "spark.master") or "local[*]"  # as spark-submit does
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def install(spark: SparkSession, config: CacheConfig | None = None) -> None:
    """Register the source in a session, with a configuration for it.

    The configuration travels as a broadcast variable, so what plans a query knows it
    too, storage settings included. It is also set as the session's conf, which every
    task carries along: so it reaches scans that were loaded before, and a setting can
    be changed later by `spark.conf.set("spark.sparkcache.maxBytes", "2g")`.

    Nodes are told of every streaming query of the session: how far it is, and its end.
    In a terminal or a notebook, what takes long to plan is shown as a progress bar.

    Args:
        spark: The session.
        config: The configuration, all of it: what it does not name has its default,
            whatever the session's conf or a conf file say. If None, these and the
            defaults say it.

    Raises:
        ConfigError: These say it wrongly, or this is no CacheConfig.

    """
    if not isinstance(config, CacheConfig | None):
        raise ConfigError(
            "install() takes a CacheConfig, such as CacheConfig(max_bytes=1 << 30), "
            f"not a {type(config).__name__}"
        )
    if config is None:
        config = CacheConfig.resolve(conf=dict(spark.conf.getAll))
    ref = BroadcastRef(spark.sparkContext, config)
    told_in = listen_once()

    class Installed(SparkCacheSource):
        installed = ref
        told = told_in

    register(spark, Installed)
    for key, value in config.to_conf().items():
        spark.conf.set(key, value)
    _listen(spark)


_listening: WeakSet[SparkSession] = WeakSet()


def _listen(spark: SparkSession) -> None:
    """Have nodes told of streaming queries, once for each session."""
    if spark not in _listening:
        _listening.add(spark)
        spark.streams.addListener(QueryListener(spark))
