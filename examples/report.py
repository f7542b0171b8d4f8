"""The results of the consumers, as one record and as tables, and their progress."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What one consumer read, and how much the server had to send.

    Attributes:
        consumer: Name of the consumer.
        rows: Messages of the topic that it counted.
        runs: Runs that its tasks requested from the cache.
        hits: Requested runs that were in memory.
        gets: GET requests for data objects that the server received.
        bytes: Bytes of data objects that the server sent.
        seconds: Time from the action to its result.
        result: The rows of the result.

    """

    consumer: str
    rows: int
    runs: int
    hits: int
    gets: int
    bytes: int
    seconds: float
    result: list[tuple[Any, ...]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Way:
    """One of the ways to run all consumers.

    Attributes:
        readings: One reading for each consumer.
        seconds: Time for all consumers, including planning.

    """

    readings: list[Reading]
    seconds: float

    def total(self, name: str) -> int:
        """Return the sum of an attribute over all readings."""
        return sum(getattr(reading, name) for reading in self.readings)


def progress_bars(console: Console) -> Progress:
    """Return bars for what is under way; none if the console is quiet."""
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=console.quiet,
    )


def summary(
    mib: int,
    latency_ms: float,
    warm_ups: int,
    without: Way,
    with_cache: Way,
    written: list[tuple[int, int]],
) -> dict[str, Any]:
    """Return the record that the demo prints as its last line."""
    rows = sum(messages for _, messages in written)
    counted = {r.rows for way in (without, with_cache) for r in way.readings}
    results = [[r.result for r in way.readings] for way in (without, with_cache)]
    return {
        "runs": with_cache.readings[0].runs,
        "consumers": len(with_cache.readings),
        "rows": rows,
        "rows_equal": counted == {rows} and results[0] == results[1],
        "topic_bytes": sum(size_bytes for size_bytes, _ in written),
        "bytes_without": without.total("bytes"),
        "bytes_with": with_cache.total("bytes"),
        "gets_without": without.total("gets"),
        "gets_with": with_cache.total("gets"),
        "seconds_without": round(without.seconds, 3),
        "seconds_with": round(with_cache.seconds, 3),
        "hits": with_cache.total("hits"),
        "ledgers": len(written),
        "mib": mib,
        "latency_ms": latency_ms,
        "warm_ups": warm_ups,
        "without": [_record(reading) for reading in without.readings],
        "with": [_record(reading) for reading in with_cache.readings],
    }


def _record(reading: Reading) -> dict[str, Any]:
    record = asdict(reading)
    del record["result"]
    return record | {"seconds": round(reading.seconds, 3)}


def tables(results: dict[str, Any]) -> Iterator[Table]:
    """Yield a table for each way."""
    for key, title in (("without", "Without a cache"), ("with", "With sparkcache")):
        readings = results[key]
        table = Table(title=title, title_justify="left", min_width=72)
        table.add_column("consumer")
        for name in ("rows", "runs", "hits", "GETs", "MiB from S3", "seconds"):
            table.add_column(name, justify="right")
        for reading in readings:
            table.add_row(reading["consumer"], *_cells(reading, reading["seconds"]))
        total = {
            name: sum(reading[name] for reading in readings)
            for name in ("rows", "runs", "hits", "gets", "bytes")
        }
        table.add_section()
        table.add_row("total", *_cells(total, results[f"seconds_{key}"]), style="bold")
        yield table


def remarks(results: dict[str, Any]) -> str:
    """Return notes on the tables."""
    rows = "Rows are equal." if results["rows_equal"] else "[red]Rows differ.[/red]"
    warm = (
        "Both ways were warmed up with a small\ntopic: the seconds do not include the "
        "start of Spark and of the cache."
        if results["warm_ups"]
        else "There was no\nwarm-up: the seconds include the start of the cache."
    )
    return (
        f"{rows} The topic has {results['topic_bytes'] / MIB:.1f} MiB in "
        f"{results['ledgers']} ledgers.\n"
        f"S3 responds after {results['latency_ms']:g} ms. {warm}\n"
        "Requests for runs that were still being loaded do not count as hits."
    )


def _cells(counts: dict[str, Any], seconds: float) -> list[str]:
    runs = [f"{counts[name]:,}" if counts["runs"] else "-" for name in ("runs", "hits")]
    return [
        f"{counts['rows']:,}",
        *runs,
        f"{counts['gets']:,}",
        f"{counts['bytes'] / MIB:,.1f}",
        f"{seconds:.2f}",
    ]


def is_as_promised(results: dict[str, Any]) -> bool:
    """Return whether every byte was sent once, and all rows are equal."""
    return bool(
        results["rows_equal"] and results["bytes_with"] == results["topic_bytes"]
    )
