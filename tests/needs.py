"""Programs and Spark versions that some tests need.

A test is skipped, with the reason, if a program is missing; with CI=true it fails
instead. A test of a feature that needs a later Spark is skipped.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from sparkcache.source.spark_version import has_spark

_TESTS = Path(__file__).parent

_STREAMS = (
    "spark/test_killed_driver.py",
    "spark/test_stream.py",
    "spark/test_table_stream.py",
    "unit/delta/test_homes_of_tables.py",
    "unit/delta/test_partition_times.py",
    "unit/delta/test_table_stream_columns.py",
    "unit/delta/test_table_stream_costs.py",
    "unit/delta/test_table_stream_ends.py",
    "unit/delta/test_table_streams.py",
    "unit/source/test_connector_seam.py",
    "unit/source/test_cut_by_home.py",
    "unit/source/test_jvm_partition.py",
    "unit/source/test_sampling.py",
    "unit/source/test_stream_reader.py",
    "unit/source/test_stream_restarts.py",
    "unit/source/test_streams_by_home.py",
    "unit/source/test_extent_index.py",
    "examples/test_pipeline.py",
    "examples/test_streaming.py",
)
_PIPELINES = ("unit/source/test_flow_selection.py",)
_SINCE = dict.fromkeys(_STREAMS, "4.2") | dict.fromkeys(_PIPELINES, "4.1")
"""Test modules, by path, and the Spark version that they need to be imported."""
_CONNECT = (*_PIPELINES, "examples/test_pipeline.py")
"""Test modules that also need Spark Connect's client: pyspark[pipelines]."""

SPARK_4_2 = pytest.mark.skipif(not has_spark("4.2"), reason="needs Spark 4.2")
SPARK_4_1 = pytest.mark.skipif(not has_spark("4.1"), reason="needs Spark 4.1")


def lacks(reason: str) -> NoReturn:
    """Skip a test because something is missing; with CI=true, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need_commands(packages: str, *commands: str) -> None:
    """Skip a test, or fail it, unless the commands are on the path."""
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        lacks(f"missing: {' and '.join(missing)} (Debian packages: {packages})")


def module_of_later_spark(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Return a skipped module if this pyspark cannot import `path`, else None."""
    name = str(path.relative_to(_TESTS))
    since = _SINCE.get(name)
    if since is not None and not has_spark(since):
        reason = f"needs Spark {since}"
    elif name in _CONNECT and find_spec("grpc") is None:
        reason = "needs pyspark[pipelines]"
    else:
        return None
    module: _Skipped = _Skipped.from_parent(parent, path=path)
    module.reason = reason
    return module


class _Skipped(pytest.Module):
    reason: str

    def collect(self) -> NoReturn:
        pytest.skip(self.reason, allow_module_level=True)
