"""Fixtures for all tests: a check for leaks, and a shared Spark session."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import boto3
import hypothesis
import pyarrow as pa
import pytest

from sparkcache.source.spark_version import has_spark
from tests import leaks, spark_home
from tests.delta_jars import require_jars
from tests.effort import tries
from tests.needs import module_of_later_spark, need_commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_PROMETHEUS = "spark.metrics.conf.*.sink.prometheusServlet"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.register_profile(
        "sparkcache", max_examples=tries(30), deadline=None
    )
    hypothesis.settings.load_profile("sparkcache")
    if not has_spark("4.2"):  # pyspark itself leaves sockets to the garbage collector
        unclosed = "ignore:Exception ignored in. <socket"
        config.addinivalue_line(
            "filterwarnings", f"{unclosed}:pytest.PytestUnraisableExceptionWarning"
        )
    leaks.become_reaper()
    if "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(_spark_home(config))
    caches = TemporaryDirectory(prefix="caches-")
    config.add_cleanup(caches.cleanup)
    os.environ["XDG_CACHE_HOME"] = caches.name
    options = spark_home.jvm_options(Path(os.environ["SPARK_HOME"]))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    # These keep files open from their first use: not a leak of the first test.
    pa.array([1]).sum()
    boto3.session.Session().get_available_services()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--python-reader",
        action="store_true",
        help="have the shared session read in Python, not in Spark's JVM",
    )


def _spark_home(config: pytest.Config) -> Path:
    """Return the home that `make` has made, or else one for this run."""
    if spark_home.has_archive(spark_home.OF_ENVIRONMENT):
        return spark_home.OF_ENVIRONMENT
    home = TemporaryDirectory(prefix="spark-home-")
    config.add_cleanup(home.cleanup)
    spark_home.link(Path(home.name))
    return Path(home.name)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    return module_of_later_spark(module_path, parent)


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Fail a test that leaks a descriptor, a process or shared memory."""
    before = leaks.Belongings.now()
    yield
    leaked = leaks.leaked_since(before)
    if leaked:
        pytest.fail("leaked:\n  " + "\n  ".join(leaked), pytrace=False)


@pytest.fixture(scope="session")
def jdk() -> None:
    """Require a JDK, which compiles the jar of the plugin."""
    need_commands("openjdk-17-jdk-headless", "javac")


@pytest.fixture(scope="session")
def chromium() -> None:
    """Require the browser that `Browser` drives."""
    need_commands("chromium chromium-driver", "chromium", "chromedriver")


@pytest.fixture(scope="session")
def delta_jars(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The jars of delta-spark. Skips, or fails in CI, if they are not available."""
    return require_jars(tmp_path_factory.mktemp("delta") / "jars")


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SparkSession]:
    """A local session with two cores. The node of its executor ends with it."""
    from pyspark.sql import SparkSession

    import sparkcache

    leaks.spark_directory = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = sparkcache.configure(
        SparkSession.builder.master("local[2]"),
        jvm_reader=False if pytestconfig.getoption("--python-reader") else None,
    )
    builder = (
        builder.config("spark.ui.port", "0")
        .config("spark.ui.contentSecurityPolicy.enabled", "true")
        .config(
            f"{_PROMETHEUS}.class", "org.apache.spark.metrics.sink.PrometheusServlet"
        )
        .config(f"{_PROMETHEUS}.path", "/metrics/prometheus")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(leaks.spark_directory))
    )
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # processes it starts inherit this environment
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    directory, leaks.spark_directory = leaks.spark_directory, None
    # The JVM also has the directory in its command line, and is still running.
    node = f"sparkcache.node {directory}"
    assert leaks.gone(node), "the session's node outlived it"
