"""The table of nodes in a terminal."""

from __future__ import annotations

from sparkcache.metrics import Metrics
from sparkcache.top import table

MIB = 1 << 20


def lines(**metrics: Metrics) -> list[list[str]]:
    by_pid = {int(pid[1:]): counted for pid, counted in metrics.items()}
    return [line.split() for line in table(by_pid).splitlines()]


def test_homes_are_shown_for_each_node_and_for_all() -> None:
    one = Metrics(requests=5, home_requests=3, away_requests=1, away_bytes=MIB)
    two = Metrics(requests=4, home_requests=4, home_bytes=48 * MIB)
    head, *rows = lines(p7=one, p8=two)
    assert head[-5:] == [
        *("home_bytes", "home_requests", "away_requests", "home_ratio", "away_bytes")
    ]
    shown = {row[0]: " ".join(row[-8:]) for row in rows}
    assert shown == {
        "7": "0 B 3 1 75.0 % 1.0 MiB",
        "8": "48.0 MiB 4 0 100.0 % 0 B",
        "all": "48.0 MiB 7 1 87.5 % 1.0 MiB",
    }


def test_where_nothing_has_a_home_nothing_is_said_of_homes() -> None:
    head, row = lines(p7=Metrics(requests=5, hits=5))
    assert row[:2] == ["7", "5"]
    assert not any("home" in name or "away" in name for name in head)


def test_without_a_node_a_sentence_says_so() -> None:
    assert table({}) == "no node of this user is running on this machine"
