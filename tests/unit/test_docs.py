"""The documentation says what the code does: README.md and docs/."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
import yaml

import sparkcache
from sparkcache import connector as connectors
from sparkcache.config import CacheConfig, scan_option_names, settings_of
from sparkcache.connector import Connector, find
from sparkcache.metric_definition import Kind
from sparkcache.metrics import METRICS
from sparkcache.source import options as scan_options
from sparkcache.source.options import ScanOptions
from sparkcache_delta import DeltaConnector
from sparkcache_pulsar import PulsarConnector
from sparkcache_rocketmq import RocketMQConnector

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REPOSITORY = re.compile(
    r"https://github\.com/sparkcache/sparkcache/(?:blob|tree)/main/"
)
NAMES = {field: metric.name for field, metric in METRICS.items()}
GAUGES = {f for f, metric in METRICS.items() if metric.kind is Kind.GAUGE}
HISTOGRAMS = {f for f, metric in METRICS.items() if metric.kind is Kind.DISTRIBUTION}
STREAM_OPTIONS = {"maxRowsPerTrigger", "maxBytesPerTrigger", "pollInterval"}
SETTINGS = {setting.option for setting in settings_of(CacheConfig)}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
}
WRITTEN = {name for name in PAGES if name != "docs/glossary.md"}


def section(page: str, heading: str) -> str:
    """The text of a page below a heading, to the next of its level or above."""
    text = PAGES[page]
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, flags=re.MULTILINE)
    assert found, f"{page} has no heading {heading}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, flags=re.MULTILINE)
    return rest[: end.start()] if end else rest


def first_cells(text: str) -> list[str]:
    """The names in the first cells of the rows of all tables."""
    cells = re.findall(r"^\|([^|]*)\|", text, flags=re.MULTILINE)
    return re.findall(r"`(\w+)[`(]", "".join(cells))


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page, block)
        for page, text in PAGES.items()
        for block in re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    ]


def slug(heading: str) -> str:
    """What a heading is called in a link, as MkDocs and GitHub do."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[\s]+", "-", plain)


# Code


@pytest.mark.parametrize(("page", "block"), blocks("python"))
def test_python_compiles(page: str, block: str) -> None:
    compile(block, page, "exec")


class Reader:
    """Stands for `spark.read`: what is loaded has to be options that there are."""

    def __init__(self, *, streams: bool) -> None:
        self.streams = streams
        self.given: dict[str, str] = {}
        self.loaded: list[ScanOptions] = []

    def format(self, name: str) -> Reader:
        assert name == "sparkcache"
        self.given = {}
        return self

    def option(self, name: str, value: object) -> Reader:
        self.given[name] = str(value)
        return self

    def load(self, path: str) -> MagicMock:
        parsed = ScanOptions.parse(self.given | {"path": path})
        parsed.check_is_stream() if self.streams else parsed.check_is_batch()
        self.loaded.append(parsed)
        return MagicMock()


RUN = [(page, block) for page, block in blocks("python") if "pipelines" not in block]


@pytest.mark.parametrize(("page", "block"), RUN)
def test_python_runs(
    page: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for Spark, which checks options as `load` does."""
    monkeypatch.chdir(tmp_path)
    manifest = {
        "ledgers": [],
        "cursors": {"billing": {"markDelete": {"ledgerId": 3, "entryId": 11}}},
    }
    (tmp_path / "orders.json").write_text(json.dumps(manifest))
    schema = {"type": "AVRO", "schema": json.dumps({"type": "record", **AVRO})}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    block = block.replace(
        "file:/etc/schemas/orders.json", f"file:{tmp_path}/schema.json"
    )
    monkeypatch.setattr(sparkcache, "plan", lambda *_: nullcontext(), raising=False)
    installed: list[CacheConfig] = []
    for name in ("configure", "install", "stats"):
        monkeypatch.setattr(sparkcache, name, MagicMock(), raising=False)
    monkeypatch.setattr(
        sparkcache, "install", lambda _, config: installed.append(config), raising=False
    )
    monkeypatch.setattr(connectors, "find", find_or_lines)
    spark = MagicMock()
    spark.read, spark.readStream = Reader(streams=False), Reader(streams=True)
    exec(compile(block, page, "exec"), {"spark": spark})
    assert all(isinstance(config, CacheConfig) for config in installed)
    if ".load(" in block:
        assert spark.read.loaded or spark.readStream.loaded


def find_or_lines(name: str) -> Connector:
    """Find a connector, as if that of the example were installed."""
    if name != "lines":
        return find(name)
    from lines_connector import LinesConnector

    connector: Connector = LinesConnector()
    return connector


AVRO = {
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "total", "type": "double"},
    ],
}


def test_json_is_json() -> None:
    for page, block in blocks("json"):
        assert json.loads(block), page


# Commands, links and paths


def test_targets_that_are_named_exist() -> None:
    found = re.search(r"^\.PHONY: (.+)$", read("Makefile"), flags=re.MULTILINE)
    assert found
    targets = set(found[1].split())
    for page, text in PAGES.items():
        code = re.findall(r"`make ([a-z][\w-]*)", text)
        code += re.findall(r"^make ([a-z][\w-]*)", text, flags=re.MULTILINE)
        assert set(code) <= targets, page
    assert {"demo", "test", "docs"} <= set(
        re.findall(r"make ([a-z][\w-]*)", PAGES["README.md"])
    )
    listed = set(re.findall(r"^\| `make ([\w-]+)", PAGES["docs/contributing.md"], re.M))
    assert listed == targets - {"python", "java"}


def test_programs_that_are_named_exist() -> None:
    for page, text in PAGES.items():
        for module in re.findall(r"python -m (sparkcache[\w.]*)", text):
            path = ROOT / module.replace(".", "/")
            programs = (path / "__main__.py", path.with_suffix(".py"))
            assert any(program.exists() for program in programs), (page, module)
        for program in re.findall(r"`(\w+\.py)`", text):
            assert list(ROOT.glob(f"*/**/{program}")), (page, program)


def links() -> Iterator[tuple[str, str]]:
    for page, text in PAGES.items():
        code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", code):
            yield page, link


@pytest.mark.parametrize(("page", "link"), sorted(set(links())))
def test_links_lead_somewhere(page: str, link: str) -> None:
    target, _, anchor = REPOSITORY.sub("", link).partition("#")
    if "://" in target:
        return
    base = ROOT if REPOSITORY.match(link) else (ROOT / page).parent
    path = (base / target).resolve() if target else ROOT / page
    assert path.exists()
    assert path.is_relative_to(ROOT)
    if page != "README.md" and not REPOSITORY.match(link):
        assert path.is_relative_to(DOCS), "pages of the site link to pages"
    if anchor:
        text = path.read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
        assert anchor in {slug(heading) for heading in headings}


def test_paths_in_code_exist() -> None:
    parts = r"(?:sparkcache|connectors|tests|tools|conf|docs|examples)"
    for page, text in PAGES.items():
        for path in re.findall(rf"`({parts}/[\w./-]+)`", text):
            assert (ROOT / path).exists(), (page, path)


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"^ +- ([\w/-]+\.md)$", read("mkdocs.yml"), re.MULTILINE))
    assert named == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


def test_every_decision_is_in_the_list() -> None:
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", PAGES["docs/decisions/index.md"])
    there = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert listed == there


def test_every_example_is_in_the_quick_start() -> None:
    examples = ROOT / "examples"
    programs = {
        str(path.relative_to(examples))
        for path in examples.rglob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }
    programs.add("notebook.ipynb")
    table = section("docs/quick-start.md", "Examples")
    assert programs == set(re.findall(r"^\| \[examples/([\w./]+)\]", table, re.M))


def test_extras_are_extras() -> None:
    pyproject = read("pyproject.toml")
    extras = pyproject.split("[project.optional-dependencies]")[1].split("\n\n")[0]
    known = set(re.findall(r"^(\w+) =", extras, flags=re.MULTILINE))
    for page, text in PAGES.items():
        for named in re.findall(r"'?(?:sparkcache|\.)\[([\w,]+)\]'", text):
            assert set(named.split(",")) <= known, page
    table = section("docs/quick-start.md", "Install")
    listed = set(re.findall(r"`sparkcache\[(\w+)\]`", table))
    assert listed == known - {"testing"}


# Options and settings


def test_every_option_is_in_the_reference_and_no_other() -> None:
    page = "docs/reference/options.md"
    common = set(first_cells(section(page, "Common options")))
    streams = set(first_cells(section(page, "Options of streams")))
    assert common | streams == set(scan_options._COMMON_NAMES) | {"load"}
    assert streams == STREAM_OPTIONS | {"startingOffsets"}
    for heading, connector in (
        ("Options of Pulsar topics", PulsarConnector),
        ("Options of RocketMQ topics", RocketMQConnector),
        ("Options of Delta tables", DeltaConnector),
    ):
        assert set(first_cells(section(page, heading))) == connector.option_names
    also = section(page, "Settings that are options as well").split("A setting with")[0]
    assert set(re.findall(r"`(\w+)`", also)) == scan_option_names()


def test_options_of_a_page_are_options() -> None:
    known = set(scan_options._COMMON_NAMES)
    pulsar = "docs/connectors/pulsar.md"
    for heading in ("Values with a schema", "Encrypted messages"):
        options = section(pulsar, heading).split("| schema |")[0]
        assert set(first_cells(options)) < PulsarConnector.option_names
    rocketmq = set(first_cells(section("docs/connectors/rocketmq.md", "Options")))
    assert RocketMQConnector.option_names < rocketmq
    assert rocketmq <= known | RocketMQConnector.option_names
    delta = set(first_cells(section("docs/connectors/delta.md", "Options")))
    assert delta == DeltaConnector.option_names | {"topic"}
    streams = set(first_cells(section("docs/streaming.md", "Options")))
    assert streams == STREAM_OPTIONS | {"startingOffsets"}


def test_names_in_code_are_names() -> None:
    """Of whatever kind: options, settings, columns, metrics, names of others."""
    known = SETTINGS | scan_options._COMMON_NAMES
    for connector in (PulsarConnector, RocketMQConnector, DeltaConnector):
        known |= connector.option_names
    for page in WRITTEN - {
        "docs/coming-from-pulsar.md",
        "docs/coming-from-rocketmq.md",
    }:
        for name in re.findall(r"`([a-z]+[A-Z]\w*)`", PAGES[page]):
            assert name in known | OTHER_NAMES, (page, name)
        for name in re.findall(r"spark\.sparkcache\.(\w+)", PAGES[page]):
            assert name in SETTINGS, (page, name)


OF_OTHERS = {"docs/coming-from-pulsar.md", "docs/coming-from-rocketmq.md"}
OTHER_NAMES = {
    "orderBy",
    "repartitionByRange",
    "foreachPartition",
    "uncompressedSize",  # of the column __encryption
    "batchSize",
    "pushFilters",
    "emptyDir",  # of Kubernetes
}


def test_times_are_the_defaults() -> None:
    table = section("docs/reference/settings.md", "Time to live")
    shown = dict(re.findall(r"^\| `(\w+)` \| `(\w+)`", table, flags=re.MULTILINE))
    conf = CacheConfig().to_conf()
    assert shown == {name: conf["spark.sparkcache." + name] for name in shown}
    assert len(shown) == 5


def test_defaults_in_the_text_are_the_defaults() -> None:
    """Such as: `continueCaching` (30 s), `runBytes` (2 MiB), `storageAttempts` (5)."""
    conf, seen = CacheConfig().to_conf(), 0
    units = {" s": "s", " MiB": "m", " GiB": "g", "": ""}
    for page, text in PAGES.items():
        found = re.findall(r"`(\w+)` \((\d+)( s| MiB| GiB|)\b[\w ]*\)", text)
        for name, number, unit in found:
            if name in SETTINGS:
                assert conf[f"spark.sparkcache.{name}"] == number + units[unit], page
                seen += 1
    assert seen >= 6


def test_what_others_call_it_names_what_there_is() -> None:
    ours = set()
    for page in OF_OTHERS:
        known = SETTINGS | set(NAMES)
        for line in PAGES[page].splitlines():
            if line.startswith("|"):
                ours |= set(re.findall(r"`(\w+)`", line.split("|")[2]))
        assert ours - {"sparkcache"} <= known, page
    assert {"ttlCreate", "ttlAfterRead", "ttl", "maxLife", "hits", "misses"} <= ours


# Tables that come from the code


def generated() -> str:
    return subprocess.run(
        [sys.executable, "-c", PRINT_TABLES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


PRINT_TABLES = """
import json, sys
sys.path.insert(0, "tools")
import docs_tables as it
pages = {str(p.relative_to(it.ROOT)): it.renewed(p.read_text("utf-8"))
         for p in it.DOCS.rglob("*.md")}
print(json.dumps({"pages": pages, "picture": it.picture(), "java": it.java()}))
"""


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(generated())
    return found


def test_generated_tables_are_as_the_code_makes_them(tables: dict[str, Any]) -> None:
    for page, text in tables["pages"].items():
        assert PAGES[page] == text, f"{page}: run python tools/docs_tables.py"
    assert read("docs/policies.svg") == tables["picture"]
    assert read("sparkcache/jvm/java/ui/MetricNames.java") == tables["java"]


def test_every_setting_is_in_the_table() -> None:
    table = section("docs/reference/settings.md", "All settings")
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (\w+) \|", table, re.M)
    conf = CacheConfig().to_conf()
    assert [(name, default) for name, default, _ in rows] == [
        (key.removeprefix("spark.sparkcache."), value) for key, value in conf.items()
    ]
    assert {name for name, _, scope in rows if scope == "scan"} == scan_option_names()


def test_every_metric_is_in_the_table() -> None:
    text = PAGES["docs/reference/metrics.md"]
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \| (\w+) \| (.+) \|$", text, re.M)
    assert [(name, published) for name, published, _, _ in rows] == list(NAMES.items())
    for name, _, kind, meaning in rows:
        assert meaning.strip(), name
        assert (kind == "gauge") == (name in GAUGES)
        assert (kind == "distribution") == (name in HISTOGRAMS)
    for identity in re.findall(r"`(\w+ [=+] [\w +=]+)`", text):
        assert set(re.findall(r"\w+", identity)) <= NAMES.keys()


def test_metrics_to_look_at_are_metrics() -> None:
    table = section("docs/operations/monitoring.md", "What to look at")
    assert set(re.findall(r"`(\w+)`", table)) - {"maxBytes"} <= NAMES.keys()


def test_ratios_in_sizing_are_those_of_the_results() -> None:
    text = read("tests/benchmarks/results/policies.json")
    of = json.loads(text)["result"]
    engines = section("docs/operations/sizing.md", "Which engine")
    row = next(line for line in engines.splitlines() if "the oracle's" in line)
    ratios = [
        tuple(round(of[f"{name}_over_min_{which}"], 2) for which in ("mean", "worst"))
        for name in ("next_read", "ring", "lists")
    ]
    found = re.findall(r"([\d.]+) \(([\d.]+)\)", row)
    assert [(float(mean), float(worst)) for mean, worst in found] == ratios
    assert f"FIFO does ({of['fifo_over_min_mean']:.2f})" in engines


# Columns


def test_columns_of_rocketmq() -> None:
    table = section("docs/connectors/rocketmq.md", "Columns")
    assert sorted(first_cells(table)) == sorted(RocketMQConnector().schema("").names)


def test_columns_of_pulsar() -> None:
    connector = PulsarConnector()
    names = set(connector.schema(connector.decoding({})).names)
    for options in (
        {"isolation": "read_uncommitted"},
        {"cryptoFailureAction": "consume"},
        {"valueSchema": "STRING", "mode": "PERMISSIVE"},
    ):
        schema = connector.schema(connector.decoding(options))
        assert isinstance(schema, pa.Schema)
        names |= set(schema.names)
    listed = first_cells(section("docs/connectors/pulsar.md", "Columns"))
    assert sorted(listed) == sorted(names)


# Manner


def test_public_names_are_in_the_reference() -> None:
    page = PAGES["docs/reference/api.md"]
    headings = re.findall(r"heading: sparkcache\.(\w+)", page)
    assert set(sparkcache.__all__) <= set(headings)
    for path in re.findall(r"^::: ([\w.]+)$", page, flags=re.MULTILINE):
        module = ROOT / f"{path.replace('.', '/')}.py"
        if not module.exists():
            file = f"{path.rpartition('.')[0].replace('.', '/')}.py"
            found = next(
                (p for p in (ROOT / file, ROOT / "connectors" / file) if p.exists()),
                None,
            )
            assert found, path
            name = path.rpartition(".")[2]
            assert re.search(rf"^(?:def|class) {name}\b", found.read_text(), re.M)


def test_versions_are_the_same_everywhere() -> None:
    rows = [
        re.findall(r"^\| 4\.\d \|.*$", PAGES[page], flags=re.MULTILINE)
        for page in ("README.md", "docs/index.md")
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4


def test_words_that_read_like_a_translation() -> None:
    for page in WRITTEN:
        text = re.sub(
            r"<!-- generated.*?<!-- end -->", "", PAGES[page], flags=re.DOTALL
        )
        for word in ("told", "anew", "whoever", "behind"):
            assert not re.search(rf"\b{word}\b", text, re.IGNORECASE), (page, word)


def test_mkdocs_is_strict() -> None:
    config = yaml.safe_load(re.sub(r"!!python/name:\S+", "null", read("mkdocs.yml")))
    assert config["strict"]
    assert set(config["validation"].values()) == {"warn"}
    for hook in config["hooks"]:
        assert (ROOT / hook).exists()
