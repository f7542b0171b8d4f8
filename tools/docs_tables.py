"""Tables, examples and pictures of the documentation, made from code and results.

    python tools/docs_tables.py

writes them into the pages, between `<!-- generated: NAME -->` and `<!-- end -->`.
MkDocs runs this module as a hook, so the site always has the present ones. A test keeps
the pages equal. The names of metrics in the Java of Spark's UI are written as well.
"""

from __future__ import annotations

import json
import re
import statistics
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkcache.config import (
    CacheConfig,
    scan_option_names,
    session_option_names,
    settings_of,
)
from sparkcache.metrics import METRICS
from sparkcache.node.status import LIMIT
from sparkcache.ui.plotted import PLOTTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "tests" / "benchmarks" / "results"
LINES = ROOT / "examples" / "lines_connector"
PICTURE = DOCS / "policies.svg"
JAVA = ROOT / "sparkcache" / "jvm" / "java" / "ui" / "MetricNames.java"

_SECTION = re.compile(r"<!-- generated: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)
_UNITS = {"By": "bytes", "s": "seconds", "1": ""}
_POLICIES = {
    "next-read": "next_read",
    "LRC": "lrc",
    "MRD": "mrd",
    "ring, `copyEntries=false`": "lists",
    "expected-reads (PIP-430)": "pip430",
    "ring": "ring",
    "FIFO": "fifo",
    "LRU": "lru",
    "S3-FIFO": "s3fifo",
    "ARC": "arc",
    "W-TinyLFU": "wtinylfu",
    "SIEVE": "sieve",
}

_CHAOS = {
    "faults": "faults",
    "queries": "topics read",
    "failed": "queries that failed",
    "wrong_rows": "wrong rows",
    "samples": "samples of memory",
    "cap_exceeded": "above `maxBytes`",
    "without_node": "executors without a node",
    "leaks": "left at the end",
}


def settings() -> str:
    """Return the table of all settings, from `CacheConfig`."""
    settings = settings_of(CacheConfig)
    names = {setting.option for setting in settings}
    rows = []
    for setting in settings:
        default = setting.show(setting.default)
        rows.append(
            (
                f"`{setting.option}`",
                f"`{default}`" if default else "",
                _scope(setting.option),
                f"`{setting.name}`",
                _quoted(setting.doc, names),
            )
        )
    return _table(("setting", "default", "scope", "field", "meaning"), rows)


def _scope(setting: str) -> str:
    if setting in session_option_names():
        return "session"
    return "scan" if setting in scan_option_names() else "node"


def metrics() -> str:
    """Return the table of all metrics, from their definitions."""
    rows = [
        (
            f"`{field}`",
            f"`{metric.name}`",
            metric.kind.value,
            _UNITS[metric.unit],
            _quoted(metric.meaning, set(METRICS)),
        )
        for field, metric in METRICS.items()
    ]
    return _table(("metric", "published as", "kind", "unit", "meaning"), rows)


def java() -> str:
    """Return the names that the plugin of Spark's UI has to know, as a Java class."""
    held = [metric.name for metric in METRICS.values() if metric.is_held]
    return (
        "package org.apache.spark.sparkcache;\n\n"
        "import java.util.Set;\n\n"
        "/** Published names of metrics. Written by tools/docs_tables.py. */\n"
        "final class MetricNames {\n"
        "  /** What the tab plots over time. */\n"
        f"  static final String[] PLOTTED = {{{_listed(PLOTTED)}\n  }};\n\n"
        "  /** What a node holds: nothing if it is gone. */\n"
        f"  static final Set<String> HELD = Set.of({_listed([*held, LIMIT])});\n"
        "}\n"
    )


def warm_scan() -> str:
    """Return how fast a cached topic is read through Spark."""
    of = _result("warm_scan")
    named = (
        ("in the JVM: `persist(MEMORY_ONLY)`, read again", "jvm_over_persist_noop"),
        ("in the JVM: the same, `count()`", "jvm_over_persist_count"),
        ("in the JVM: the same, CRC-32 of each value", "jvm_over_persist_bytes"),
        ("in the JVM: Parquet files in the page cache", "jvm_over_parquet_noop"),
        ("in the JVM: the same scan in Python", "jvm_over_python_noop"),
        ("in Python: `persist(MEMORY_ONLY)`, read again", "warm_over_persist"),
        (
            "in Python: a Python source that yields one prebuilt batch, the limit of "
            "Spark's Python path",
            "warm_over_ceiling",
        ),
        ("in Python: the same scan, fetched and decoded", "warm_over_cold"),
    )
    rows = [
        (text, *(_short(of[f"{key}_local{cores}"]) for cores in (1, 2)))
        for text, key in named
    ]
    for case, text in (("jvm", "in the JVM"), ("warm", "in Python")):
        speeds = (f"{of[f'{case}_gib_s_local{cores}']} GiB/s" for cores in (1, 2))
        rows.append((f"{text}: speed of the cached scan", *speeds))
    return _table(("speed of the cached scan / speed of", "local[1]", "local[2]"), rows)


def cluster() -> str:
    """Return what a cluster of four executors fetches, and how long it takes."""
    of = _result("cluster")
    waits = ", ".join(
        f"{_short(ratio)} with {wait}"
        for wait, ratio in of["seconds_over_no_preference"].items()
    )
    return _table(
        ("measured", "result"),
        (
            ("bytes from S3 / bytes of the topic", _short(of["bytes_over_topic"])),
            ("runs that tasks asked for at their home", f"{of['tasks_at_home']:.0%}"),
            (
                "one executor killed: bytes fetched again / bytes it was home of",
                _short(of["refetched_over_lost"]),
            ),
            ("seconds / without homes, by `spark.locality.wait`", waits),
        ),
    )


def homes() -> str:
    """Return what was simulated of homes among many executors."""
    rows = [
        (
            size,
            f"{of['plan_s']:.2f} s",
            _short(of["most_over_mean"]),
            _short(of["of_part"]["most_over_mean"]),
            _short(of["moved_leave"]),
            _short(of["moved_join"]),
            f"{of['moved_trim']:.0%}",
        )
        for size, of in _result("homes")["sizes"].items()
    ]
    heads = (
        "executors and extents",
        "time",
        "most / mean",
        "likewise, hashed alone",
        "moved if one leaves / its own",
        "moved if one joins / its share",
        "moved if the first tenth is removed",
    )
    return _table(heads, rows)


def caches() -> str:
    """Return what several caches read, next to one as large as all of them."""
    of = _result("homes")["caches_over_one"]
    rows = []
    for name in next(iter(of.values())):
        ratios = [row[name] for row in of.values()]
        rows.append((name, _short(statistics.mean(ratios)), _short(max(ratios))))
    return _table(("bytes read / those of one cache", "mean", "worst"), rows)


def first_scan() -> str:
    """Return how fast loaders load a topic from an S3 server."""
    pulsar, rocketmq = _result("pulsar_scan"), _result("rocketmq_scan")
    named = (
        ("Pulsar", pulsar),
        ("Pulsar, LZ4", pulsar["lz4"]),
        ("RocketMQ", rocketmq),
    )
    rows = [
        (
            name,
            f"{of['mb_s']:.0f}",
            f"{of['topic_bytes'] / 2**20:.0f}",
            f"{1 / of['gets_per_mib']:.0f}",
            _short(of["bytes_over_topic"]),
            f"{1 / of['cold_over_raw']:.1f}",
        )
        for name, of in named
    ]
    table = _table(
        (
            "topic",
            "MB of values a second",
            "MiB stored",
            "MiB for each GET",
            "bytes / bytes of the topic",
            "fetching alone is faster by",
        ),
        rows,
    )
    return (
        f"{table}\nRocketMQ: {rocketmq['cold_msgs_s']:,} messages of 1 KiB a second. "
        "Runs that the node holds are served to two readers at "
        f"{rocketmq['warm_msgs_s'] / 1e6:.1f} million messages a second.\n"
    )


def read_ahead() -> str:
    """Return what read-ahead makes of a storage that answers late."""
    of = _result("read_ahead")
    ways = ("0ms", "5ms", "20ms", "80ms", "without_20ms")
    rows = []
    for text, kind, prefix in (
        ("512 MiB in 8 objects", "blocks", ""),
        ("256 MiB in 128 objects", "small", "small_"),
    ):
        rows.append(
            (f"{text}, seconds", *(_short(of["seconds"][kind][way]) for way in ways))
        )
        ratios = [f"{prefix}over_bound_{ms}ms" for ms in (5, 20, 80)]
        ratios.append(f"{prefix}without_over_bound_20ms")
        rows.append((f"{text}, / 0 ms", "1", *(_short(of[key]) for key in ratios)))
    return _table(
        ("", "0 ms", "5 ms", "20 ms", "80 ms", "20 ms, `readAheadBytes=0`"), rows
    )


def fan_out() -> str:
    """Return what five jobs over one topic fetch."""
    of = _result("fan_out")["bytes_over_topic"]
    names = {
        "full cache": "a cache that holds the topic",
        "next-read, 25 %": "25 % of it, `next-read`",
        "expected-reads, 25 %": "25 % of it, `expected-reads`",
        "lru, 25 %": "25 % of it, `lru`",
    }
    rows = [
        (text, _short(of[name]["in turns"]), _short(of[name]["threads"]))
        for name, text in names.items()
    ]
    return _table(
        ("bytes from S3 / bytes of the topic", "one after another", "in two threads"),
        rows,
    )


def jobs() -> str:
    """Return how long several consumers take, with the cache and otherwise."""
    fan, delta, streams = _result("fan_out"), _result("delta"), _result("streams")
    rows = [
        (
            "five jobs over a topic, no cache",
            _percent(fan["seconds_next_read_over_none"]),
        ),
        (
            "five jobs over a topic, `persist(MEMORY_ONLY)`, filling it included",
            _percent(fan["seconds_next_read_over_persist"]),
        ),
        (
            "five jobs over a Delta table, Delta's own reader through S3A",
            _percent(delta["seconds_over_delta"]),
        ),
        (
            "five jobs over a Delta table, `persist(MEMORY_ONLY)`, filling it included",
            _percent(delta["seconds_over_persist"]),
        ),
        (
            "four streams and a back-fill, no cache",
            _percent(1 / streams["rows_s_over_uncached"]),
        ),
    ]
    return _table(("compared with", "time with the cache"), rows)


def policies() -> str:
    """Return what each policy reads compared with the oracle."""
    of = _result("policies")
    keys = ("mean", "worst", "broken_worst")
    rows = [
        (name, *(f"{of[f'{key}_over_min_{which}']:.2f}" for which in keys))
        for name, key in sorted(
            _POLICIES.items(), key=lambda item: of[f"{item[1]}_over_min_mean"]
        )
    ]
    return _table(
        ("", "mean", "worst", "worst, where consumers break off or never come"), rows
    )


def restarts() -> str:
    """Return the hit rates in the scenario that PIP-430 was measured with."""
    of = _result("policies")["pip430_scenario"]
    rows = [(name, f"{rate * 100:.2f} %") for name, rate in of.items()]
    return _table(("policy", "hits"), rows)


def decoding() -> str:
    """Return how fast one core decodes Pulsar's entries."""
    of = _result("decode")["mb_s"]
    names = {
        "none": "none",
        "lz4": "LZ4",
        "zlib": "ZLIB",
        "zstd": "ZSTD",
        "snappy": "Snappy",
        "single_1k": "single 1 KiB messages",
        "batched_100b": "100-byte messages",
    }
    return _table(list(names.values()), [[f"{of[key]:.0f}" for key in names]])


def values() -> str:
    """Return how fast one core decodes values by their schema."""
    of = _result("values")["mb_s"]
    rows = [
        (text, *(f"{of[f'{kind}_{shape}']:.0f}" for shape in ("flat", "nested")))
        for text, kind in (("Avro", "avro"), ("JSON", "json"), ("Protobuf", "protobuf"))
    ]
    return _table(("", "30 flat fields", "an array of structs and a map"), rows)


def expiry() -> str:
    """Return what readers wait for while very much expires at once."""
    of = _result("expiry")
    rows = [
        (
            text.format(of[name]["runs"]),
            *(
                f"{of[name][key]:,.1f}"
                for key in ("max_delay_ms", "max_wall_ms", "idle_ms", "one_go_ms")
            ),
            f"{of[name]['freed_s']:.1f} s",
        )
        for text, name in (
            ("{:,} runs, without descriptors", "million"),
            ("{:,} runs: every descriptor that a process may have here", "descriptors"),
            ("1 GiB in {:,} runs", "gibibyte"),
        )
    ]
    return _table(
        (
            "milliseconds",
            "longest wait",
            "with the wait for a core",
            "with nothing to expire",
            "if it was not done in steps",
            "all freed after",
        ),
        rows,
    )


def engines() -> str:
    """Return the two engines side by side."""
    of = _result("engines")
    small, large = of["us_hit_4k"], of["us_hit_4m"]
    columns = ("runs", "ring", "lists")
    rows = [
        ("a run of 4 KiB, in us", *(f"{small[name]:.0f}" for name in columns)),
        ("a run of 4 MiB, in us", *(f"{large[name]:.0f}" for name in columns)),
        (
            "evict a run, 10 topics, in ns",
            *(f"{of[f'ns_evict_{name}']['10']:,}" for name in columns[:2]),
            "",
        ),
        (
            "evict a run, 100,000 topics, in ns",
            *(f"{of[f'ns_evict_{name}']['100000']:,}" for name in columns[:2]),
            "",
        ),
    ]
    table = _table(("", "`runs`", "`ring`", "`ring`, `copyEntries=false`"), rows)
    return (
        f"{table}\nIn a node full of runs of 100,000 topics, eviction is "
        f"{of['ring_evict_cpu_share_100k'] * 100:.1f} % of what the node and its "
        "loaders do. A ring of 1 GiB holds "
        f"{of['ring_bytes_held_over_cached']:.2f} bytes for each byte that can be "
        f"found, {of['ring_bytes_held_over_cached_worst']:.2f} at worst.\n"
    )


def core() -> str:
    """Return what the core's decisions cost."""
    of = _result("core")
    sizes = ("10", "1000", "100000")
    rows = [
        (call, *(f"{of[f'ns_{call}'][size]:,}" for size in sizes))
        for call in ("insert", "hit", "evict")
    ]
    heads = ("nanoseconds", *(f"{int(size):,} topics" for size in sizes))
    return (
        f"{_table(heads, rows)}\nThe same mix of calls takes cachetools' `TLRUCache` "
        f"{of['over_cachetools']:.1f} times as long.\n{_decisions(of)}"
    )


def _decisions(of: Mapping[str, Any]) -> str:
    """Return what a decision and a hit cost in microseconds, if it was measured."""
    if "ns_node_hit" not in of:
        return ""
    costs = of["ns_evict_by_consumers"]
    row = [f"{cost / 1000:.0f}" for cost in costs.values()]
    heads = [f"{int(number):,} consumers" for number in costs]
    table = _table(
        ("microseconds", *heads), [("take or replace a run, by next read", *row)]
    )
    return (
        f"\n{table}\nA node needs {of['ns_node_hit'] / 1000:.0f} us for a hit, without "
        "its sockets.\n"
    )


def load() -> str:
    """Return what tasks wait for small runs, by their number."""
    of = _result("load")
    rows = [
        (
            tasks,
            f"{of['p50_us'][tasks]:,}",
            f"{of['p99_us'][tasks]:,}",
            f"{of['runs_s'][tasks]:,}",
            f"{of['ring_p50_us'][tasks]:,}",
        )
        for tasks in of["p50_us"]
    ]
    heads = ("tasks", "median, us", "99th percentile, us", "runs a second")
    return (
        f"{_table((*heads, 'median with `engine=ring`, us'), rows)}\n"
        "Where 200 tasks read runs that need twice the byte limit, and a quarter of "
        "them keep all that they read, all memory of runs was "
        f"{of['bytes_over_cap']:.2f} of the limit at most, in {of['samples']} samples. "
        "For each run that a node holds, its core needs "
        f"{of['bytes_per_run']:,} bytes.\n"
    )


_LEFT = {
    "jvm_descriptors": "descriptors of the JVM",
    "jvm_maps": "mappings of the JVM",
    "jvm_kib": "resident memory of the JVM, KiB",
    "heap_kib": "used heap of the JVM, KiB",
    "node_descriptors": "descriptors of the node",
    "node_maps": "mappings of the node",
    "node_kib": "resident memory of the node, KiB",
    "mapped": "runs that the JVM maps",
    "pinned": "runs that the node counts as mapped",
    "unused": "runs mapped before the collection",
}


def jvm_leaks() -> str:
    """Return what an executor holds, early and late in many tasks."""
    of = _result("jvm_leaks")
    rows = [
        (title, f"{of[name]['second']:,}", f"{of[name]['last']:,}")
        for name, title in _LEFT.items()
    ]
    tasks, after = of["tasks"], of["unmapped_s"]
    return (
        f"{_table(('', 'second quarter', 'last quarter'), rows)}\n"
        f"{tasks['completed']:,} tasks succeeded, {tasks['failed']:,} failed and "
        f"{tasks['killed']:,} were killed, in {of['rounds']} rounds. After a "
        "`pandas_udf` on columns, its runs were unmapped within "
        f"{after['median']:.1f} s, {after['max']:.1f} s at most, while other queries "
        "ran without a break.\n"
    )


def chaos() -> str:
    """Return what an hour of faults has shown, by seed, by kind and by step."""
    of = _result("long_chaos")
    seeds = [
        (
            seed,
            {"static": "2", "dynamic": "1 to 3"}[report["allocation"]],
            "the JVM" if report["jvm_reader"] else "Python",
            *(f"{report[name]:,}" for name in _CHAOS),
        )
        for seed, report in of["seeds"].items()
    ]
    sums = ("sum", "", "", *(f"{of[name]:,}" for name in _CHAOS))
    return "".join(
        (
            _table(("seed", "executors", "read in", *_CHAOS.values()), [*seeds, sums]),
            _table(("fault", "times"), _counted(of["kinds"])),
            _table(("step", "times"), _counted(of["steps"])),
        )
    )


def _counted(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in counts.items()]


def lines(name: str, language: str) -> str:
    """Return a file of the smallest connector as a block of code."""
    text = (LINES / name).read_text(encoding="utf-8")
    return f"\n```{language}\n{text}```\n\n"


def planning() -> str:
    """Return what it costs to plan Delta tables of many files."""
    of = _result("delta_planning")
    rows = [
        (
            f"{int(files):,}",
            text,
            f"{way['load_s'] + way['plan_s']:.1f}",
            f"{way['cpu_s']:.1f}",
            f"{way['plan_mb']:,}",
            f"{way['log'] + way['pages'] + way.get('footers', 0):,}",
            f"{way['partition_bytes']:,}",
        )
        for files in ("3000", "30000", "300000")
        for text, name in (
            ("checkpoint", "checkpoint"),
            ("commits", "commits"),
            ("checkpoint, one column", "columns"),
        )
        if (way := of[files].get(name)) is not None
    ]
    return _table(
        (
            "files",
            "log",
            "seconds",
            "of a processor",
            "MB",
            "requests",
            "bytes for each partition",
        ),
        rows,
    )


TABLES: dict[str, Callable[[], str]] = {
    "lines-connector": partial(lines, "lines_connector.py", "python"),
    "lines-pyproject": partial(lines, "pyproject.toml", "toml"),
    "lines-test": partial(lines, "test_lines_connector.py", "python"),
    "settings": settings,
    "metrics": metrics,
    "warm-scan": warm_scan,
    "cluster": cluster,
    "homes": homes,
    "caches": caches,
    "first-scan": first_scan,
    "read-ahead": read_ahead,
    "fan-out": fan_out,
    "jobs": jobs,
    "policies": policies,
    "restarts": restarts,
    "planning": planning,
    "decoding": decoding,
    "values": values,
    "expiry": expiry,
    "engines": engines,
    "load": load,
    "jvm-leaks": jvm_leaks,
    "chaos": chaos,
    "core": core,
}


def picture() -> str:
    """Return bars of what each policy reads compared with the oracle, as SVG."""
    of = _result("policies")
    bars = sorted(
        (of[f"{key}_over_min_mean"], of[f"{key}_over_min_worst"], name.replace("`", ""))
        for name, key in _POLICIES.items()
    )
    height, left, scale = 24, 190, 150
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="680" '
        f'height="{height * len(bars) + 30}" font-family="sans-serif" font-size="13">',
        "<title>Bytes read from storage / bytes that an oracle reads</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for at, (mean, worst, name) in enumerate(bars):
        y = at * height + 8
        for value, colour in ((worst, "#c5cae9"), (mean, "#3f51b5")):
            parts.append(
                f'<rect x="{left}" y="{y}" width="{value * scale:.0f}" height="16" '
                f'fill="{colour}"/>'
            )
        parts += [
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{name}</text>',
            f'<text x="{left + worst * scale + 6:.0f}" y="{y + 13}">'
            f"{mean:.2f} ({worst:.2f})</text>",
        ]
    x = left + scale
    bottom = height * len(bars) + 8
    parts += [
        f'<line x1="{x}" y1="4" x2="{x}" y2="{bottom}" stroke="#666"/>',
        f'<text x="{x}" y="{bottom + 15}" text-anchor="middle">1: the oracle</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def renewed(text: str) -> str:
    """Return a page with its generated sections as they are now."""
    return _SECTION.sub(
        lambda found: (
            f"<!-- generated: {found[1]} -->\n{TABLES[found[1]]()}<!-- end -->"
        ),
        text,
    )


def on_page_markdown(markdown: str, **_: object) -> str:
    """Have MkDocs show what is generated now, whatever the page says."""
    return renewed(markdown)


def main() -> None:
    """Write what is generated into the pages."""
    for path in DOCS.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            path.write_text(new, encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    if java() != JAVA.read_text(encoding="utf-8"):
        JAVA.write_text(java(), encoding="utf-8")


def _result(name: str) -> dict[str, Any]:
    text = (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text)["result"]
    return result


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, with empty lines around it."""
    lines = [heads, ["---"] * len(heads), *rows]
    texts = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n" + "\n".join(text.replace("|  |", "| |") for text in texts) + "\n"


def _quoted(text: str, names: set[str]) -> str:
    """Return a text of one line, with the names in it as code."""
    line = " ".join(text.split()).replace("|", "\\|")
    camel = sorted(name for name in names if re.search(r"[A-Z_]", name))
    return re.sub(rf"(?<!`)\b({'|'.join(camel)})\b(?!`)", r"`\1`", line)


def _listed(names: Iterable[str]) -> str:
    return ",".join(f'\n    "{name}"' for name in names)


def _short(value: float) -> str:
    return f"{value:.2f}"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


if __name__ == "__main__":
    main()
