"""The contents of the wheel, and the names that the README mentions."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

import sparkcache
from sparkcache.config import CacheConfig, node_option_names, scan_option_names
from sparkcache.metric_names import NAMES
from sparkcache.source.options import ScanOptions
from sparkcache_delta import DeltaConnector
from sparkcache_pulsar import PulsarConnector
from sparkcache_rocketmq import RocketMQConnector

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


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
    assert "sparkcache/ui/sparkcache.jar" in names
    assert {"sparkcache/ui/java/SparkCacheTab.java", "sparkcache/ui/page.html"} <= names


def test_the_public_names_are_there() -> None:
    for name in sparkcache.__all__:
        assert getattr(sparkcache, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sparkcache.nothing  # noqa: B018


def test_python_in_the_readme_compiles() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")


def test_commands_in_the_readme_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z][\w-]*)", README))
    assert {"demo", "test", "venv"} <= named & targets


def test_every_example_is_in_the_readme() -> None:
    section = README.split("## Examples")[1].split("\n## ")[0]
    examples = ROOT / "examples"
    programs = {
        str(path.relative_to(examples))
        for path in examples.rglob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }
    programs.add("notebook.ipynb")
    assert programs == set(re.findall(r"^\| \[examples/([\w./]+)\]", section, re.M))


def test_options_in_the_readme_are_options() -> None:
    table = README.split("### Options of a scan")[1].split("###")[0]
    table += README.split("### Streams")[1].split("###")[0]
    named = set(re.findall(r"`([a-z]+[A-Z]\w+)`", table)) - {"maxBytes"}
    named -= node_option_names()
    known = scan_option_names() | {"startingOffsets", "endingOffsets"}
    known |= {"maxRowsPerTrigger", "maxBytesPerTrigger", "pollInterval"}
    known |= {"startingTime", "endingTime", "failOnDataLoss", "minPartitions"}
    known |= {"topicsPattern"} | PulsarConnector.option_names
    assert named <= known
    rows = README.split("### RocketMQ")[1].split("| column |")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]*\|", rows, re.M))))
    assert RocketMQConnector.option_names < named
    assert named <= known | RocketMQConnector.option_names | {"topic", "topics"}
    rows = README.split("### Delta")[1].split("###")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", rows, re.M))
    assert named == DeltaConnector.option_names | {"topic"}
    for name in re.findall(r"spark\.sparkcache\.(\w+)", README):
        assert name in node_option_names() | scan_option_names()
    assert ScanOptions.parse({"topic": "t", "path": "/nowhere"}).min_partitions == 1


def test_what_others_call_it_names_settings_that_there_are() -> None:
    section = README.split("#### What others call it")[1].split("\nSize an")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("|")]
    ours = {name for row in rows for name in re.findall(r"`(\w+)`", row[2])}
    assert ours <= node_option_names() | scan_option_names()
    assert {"ttlCreate", "ttlAfterRead", "ttl", "maxLife"} <= ours


def test_metrics_in_the_readme_are_metrics() -> None:
    section = README.split("## What is counted")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", section, flags=re.MULTILINE)
    assert listed == list(NAMES.items())
    for identity in re.findall(r"`(\w+) = ([\w +]+\w)`", section):
        assert set(re.findall(r"\w+", " ".join(identity))) <= NAMES.keys()


def test_times_in_the_readme_are_the_defaults() -> None:
    section = README.split("### How long a run lives")[1].split("###")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| `(\w+)`", section, flags=re.MULTILINE))
    conf = CacheConfig().to_conf()
    assert listed == {name: conf["spark.sparkcache." + name] for name in listed}
    assert len(listed) == 5


def test_paths_in_the_readme_exist() -> None:
    for path in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / path).exists(), path


def test_columns_in_the_readme_are_columns() -> None:
    rows = README.split("### RocketMQ")[1].split("| column |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]*\|", rows, re.M)))
    assert sorted(named) == sorted(RocketMQConnector().schema("").names)
