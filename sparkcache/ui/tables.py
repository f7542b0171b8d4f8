"""Tables of metrics: rows of named values, rendered as text or HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from sparkcache.histogram import Histogram
from sparkcache.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkcache.metrics import Metrics

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def node_row(node: str, metrics: Metrics) -> dict[str, str | float]:
    """Return a node's metrics by name; a histogram has its mean and 99th percentile."""
    row: dict[str, str | float] = {"node": node}
    for name in METRICS:
        value = getattr(metrics, name)
        if isinstance(value, Histogram):
            row[f"{name}_mean"] = float(value.mean)
            row[f"{name}_p99"] = float(value.quantile(0.99))
        else:
            row[name] = value
    return row


def shown(name: str, value: str | float) -> str:
    """Return a value as text for people; the suffix of its name is the unit."""
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        return _bytes(value)
    if name.endswith("_ratio"):
        return f"{100 * value:.1f} %"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}"


def as_text(rows: Sequence[Mapping[str, str | float]], columns: Sequence[str]) -> str:
    """Return a text table of some columns, with numbers aligned to the right."""
    cells = [list(columns)] + [
        [shown(name, row[name]) for name in columns] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_text = [all(isinstance(row[name], str) for row in rows) for name in columns]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in cells
    )


def as_html(rows: Sequence[Mapping[str, str | float]], columns: Sequence[str]) -> str:
    """Return an HTML table of some columns for a notebook; all values are escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = [
        "".join(f"<td>{escape(shown(name, row[name]))}</td>" for name in columns)
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bytes(value: float) -> str:
    size, unit = abs(value), 0
    while size >= 1024 and unit < len(_BYTE_UNITS) - 1:
        size /= 1024
        unit += 1
    sign = "-" if value < 0 else ""
    return f"{sign}{size:.{min(unit, 1)}f} {_BYTE_UNITS[unit]}"
