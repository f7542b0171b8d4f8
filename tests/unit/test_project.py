"""What is shipped. What the documentation says of it is in `test_docs.py`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

import sparkcache

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build_wheel(str(tmp_path))) as wheel:
        names = set(wheel.namelist())
        (points,) = (name for name in names if name.endswith("entry_points.txt"))
        entry_points = wheel.read(points).decode()
    for point in (
        "pulsar = sparkcache_pulsar:PulsarConnector",
        "rocketmq = sparkcache_rocketmq:RocketMQConnector",
        "delta = sparkcache_delta:DeltaConnector",
    ):
        assert point in entry_points
    for package in (
        "sparkcache",
        "sparkcache_pulsar",
        "sparkcache_rocketmq",
        "sparkcache_delta",
        "pyspark_sparkcache",
    ):
        assert {f"{package}/__init__.py", f"{package}/py.typed"} <= names
    assert not any(name.startswith(("tests", "examples")) for name in names)
    assert "sparkcache/jvm/sparkcache.jar" in names
    assert "sparkcache/jvm/sparkcache_reader.jar" in names
    assert {
        "sparkcache/jvm/java/ui/SparkCacheTab.java",
        "sparkcache/ui/page.html",
    } <= names


def test_the_public_names_are_there() -> None:
    for name in sparkcache.__all__:
        assert getattr(sparkcache, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sparkcache.nothing  # noqa: B018
