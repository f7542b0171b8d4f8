"""The class path of a JVM that runs before its session is configured.

`spark-submit` and `pyspark` start the JVM before the program, and a JVM outlives its
sessions. Spark gives the jars of a new session to the executors, and not to the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext

if TYPE_CHECKING:
    from pathlib import Path

    from py4j.java_gateway import JavaObject


def add_to_driver(jar: Path, class_name: str) -> bool:
    """Let the JVM of the driver load a class; return whether it can.

    Nothing is done while there is no JVM, which then starts with the jars of its first
    session, and while a session runs, whose jars are what they are.

    Args:
        jar: The jar that has the class.
        class_name: The class, with its package.

    """
    gateway = SparkContext._gateway
    if gateway is None or SparkContext._active_spark_context is not None:
        return True
    jvm = gateway.jvm
    # The loader that Spark uses: that of `spark-submit`, which takes more jars.
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if _has(loader, class_name):
        return True
    try:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    except Py4JError:  # another loader, of a program that has started Spark by itself
        return False
    return _has(loader, class_name)


def _has(loader: JavaObject, class_name: str) -> bool:
    try:
        loader.loadClass(class_name)
    except Py4JError:
        return False
    return True
