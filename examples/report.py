"""What the demo has found: as one record, and as tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What one consumer has read, and what that took.

    Attributes:
        consumer: Its name.
        rows: Messages of the topic that it has counted.
        runs: Runs that its tasks asked the cache for.
        hits: Those of them that were in memory.
        gets: GET requests for data objects that the server has seen.
        bytes: Bytes of data objects that the server has sent.
        seconds: From the action to its result.
        result: Its result.

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
        readings: One for each consumer.
        seconds: Of all of them, and of planning them.

    """

    readings: list[Reading]
    seconds: float

    def total(self, name: str) -> int:
        """Return the sum of something over the consumers."""
        return sum(getattr(reading, name) for reading in self.readings)


def summary(
    mib: int,
    latency_ms: float,
    warm_ups: int,
    without: Way,
    with_cache: Way,
    written: list[tuple[int, int]],
) -> dict[str, Any]:
    """Return what the last line says."""
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
        "without": [_told(reading) for reading in without.readings],
        "with": [_told(reading) for reading in with_cache.readings],
    }


def _told(reading: Reading) -> dict[str, Any]:
    told = asdict(reading)
    del told["result"]
    return told | {"seconds": round(reading.seconds, 3)}


def tables(found: dict[str, Any]) -> Iterator[Table]:
    """Yield a table for each way."""
    for key, title in (("without", "Without a cache"), ("with", "With sparkcache")):
        readings = found[key]
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
        table.add_row("total", *_cells(total, found[f"seconds_{key}"]), style="bold")
        yield table


def remarks(found: dict[str, Any]) -> str:
    """Return what is to be known of the tables."""
    rows = "Rows are equal." if found["rows_equal"] else "[red]Rows differ.[/red]"
    warm = (
        "Both ways were warmed up with a small\ntopic: the start of Spark and of the "
        "cache is not in the seconds."
        if found["warm_ups"]
        else "The start of\nthe cache is in the seconds, there was no warm-up."
    )
    return (
        f"{rows} The topic has {found['topic_bytes'] / MIB:.1f} MiB in "
        f"{found['ledgers']} ledgers.\n"
        f"S3 answers after {found['latency_ms']:g} ms. {warm}\n"
        "Runs that were asked for while they were on their way are no hits."
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


def is_as_promised(found: dict[str, Any]) -> bool:
    """Tell whether every byte came once, and every row is what it was without."""
    return bool(found["rows_equal"] and found["bytes_with"] == found["topic_bytes"])
