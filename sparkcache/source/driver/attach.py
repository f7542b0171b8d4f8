"""The tab in the UI of a running session that has no plugin."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import sparkcache
from sparkcache.errors import ConfigError
from sparkcache.source.driver.node_rpc import node_statuses
from sparkcache.ui.plotted import PLOTTED

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_VIEWED_WITHIN_S = 10.0
_MAX_POINTS = 400

_log = logging.getLogger(__name__)


def attach_ui(spark: SparkSession, every_s: float = 2.0) -> AttachedTab:
    """Add the tab to the UI of a session that was not prepared by `configure`.

    Spark compiles the tab, which takes about a second. Without the plugin, a small job
    polls the executors while a browser shows the page; the event log gets nothing.

    Args:
        spark: The session. Raises ConfigError if it has no UI, or has the tab already.
        every_s: Interval between two polls.

    """
    context = spark.sparkContext
    java_ui = context._jsc.sc().ui()
    if not java_ui.isDefined():
        raise ConfigError("attach_ui(): this session has no UI: spark.ui.enabled=false")
    tabs = java_ui.get().getTabs()
    if any(tabs.apply(index).prefix() == "sparkcache" for index in range(tabs.size())):
        raise ConfigError("attach_ui(): the UI of this session has the tab already")
    return AttachedTab(spark, _compiled(context, java_ui.get()), every_s)


class AttachedTab:
    """A tab that this process keeps up to date, until the session ends."""

    def __init__(self, spark: SparkSession, tab: JavaObject, every_s: float) -> None:
        self._spark = spark
        self._tab = tab
        self._every_s = every_s
        self._points: list[list[float]] = []
        self._is_over = threading.Event()
        self.refresh()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"AttachedTab({self._spark.sparkContext.uiWebUrl}/sparkcache/)"

    def refresh(self) -> None:
        """Poll the executors now."""
        statuses = [
            {"executor": _executor(name), "is_gone": False, **json.loads(status)}
            for name, status in sorted(node_statuses(self._spark))
        ]
        sums = [
            float(sum(status["metrics"][name] for status in statuses))
            for name in PLOTTED
        ]
        self._points.append([time.time() * 1000, *sums])
        if len(self._points) > _MAX_POINTS:
            del self._points[1:-1:2]
        report = {"executors": statuses, "plotted": PLOTTED, "points": self._points}
        self._tab.update(json.dumps(report))

    def close(self) -> None:
        """Stop polling; the tab keeps its last content."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(self._every_s):
            try:
                if time.time() - self._tab.askedMs() / 1000 < _VIEWED_WITHIN_S:
                    self.refresh()
            except (Py4JError, PySparkException, OSError) as error:
                _log.info("the tab is no longer kept up to date: %s", type(error))
                return


def _executor(directory: str) -> str:
    """Return a name of the executor; tasks do not know Spark's own executor ids."""
    return Path(directory).parent.name[:17]


def _compiled(context: SparkContext, java_ui: JavaObject) -> JavaObject:
    """Compile the tab, attach it to the UI and return it."""
    jvm: Any = context._jvm
    gateway: Any = context._gateway
    package = Path(sparkcache.__file__).parent
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    tab_source = package / "jvm" / "java" / "ui" / "SparkCacheTab.java"
    compiler.cook(tab_source.read_text("utf-8"))
    tab_class = compiler.getClassLoader().loadClass(
        "org.apache.spark.sparkcache.SparkCacheTab"
    )
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0] = java_ui
    tab = tab_class.getConstructors()[0].newInstance(arguments)
    tab.setPage((package / "ui" / "page.html").read_text("utf-8"))
    java_ui.attachTab(tab)
    return tab
