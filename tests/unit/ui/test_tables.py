"""Metrics as tables."""

from __future__ import annotations

import pytest

from sparkcache.histogram import TIMES_S, Values
from sparkcache.metrics import Metrics, TopicMetrics
from sparkcache.ui.tables import as_html, as_text, node_row, shown


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("held_bytes", 0, "0 B"),
        ("held_bytes", 1023, "1023 B"),
        ("held_bytes", 1536, "1.5 KiB"),
        ("saved_bytes", -3 << 20, "-3.0 MiB"),
        ("held_bytes", 1 << 70, "1048576.0 PiB"),
        ("hit_ratio", 0.3333, "33.3 %"),
        ("requests", 1234567, "1,234,567"),
        ("load_s_p99", 0.02, "0.02"),
        ("topic", "a", "a"),
    ],
)
def test_values_are_shown_with_their_unit(
    name: str, value: str | float, text: str
) -> None:
    assert shown(name, value) == text


def test_a_row_has_every_metric() -> None:
    load_s = Values(TIMES_S)
    load_s.add(0.3)
    row = node_row("n", Metrics(requests=4, hits=1, load_s=load_s.histogram()))
    assert (row["node"], row["requests"], row["hit_ratio"]) == ("n", 4, 0.25)
    assert (row["load_s_mean"], row["load_s_p99"]) == (0.3, 0.5)
    assert TopicMetrics(topic="t", reads=5, gets=2).by_name()["saved_gets"] == 3


def test_text_is_aligned() -> None:
    rows: list[dict[str, str | float]] = [
        {"topic": "orders", "runs": 5, "held_bytes": 1 << 20},
        {"topic": "a", "runs": 12345, "held_bytes": 1},
    ]
    assert as_text(rows, ("topic", "held_bytes", "runs")).splitlines() == [
        "topic   held_bytes    runs",
        "orders     1.0 MiB       5",
        "a              1 B  12,345",
    ]


def test_html_escapes_what_comes_from_outside() -> None:
    html = as_html([{"topic": "<script>&", "runs": 1}], ("topic", "runs"))
    assert html == (
        "<table><thead><tr><th>topic</th><th>runs</th></tr></thead>"
        "<tbody><tr><td>&lt;script&gt;&amp;</td><td>1</td></tr></tbody></table>"
    )
    assert as_html([], ("topic",)).endswith("<tbody></tbody></table>")
