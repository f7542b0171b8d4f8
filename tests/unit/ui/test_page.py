"""The page of the tab, in a browser, with reports of nodes."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkcache
from sparkcache.metrics import Metrics, TopicMetrics
from sparkcache.node import status
from sparkcache.ui.plotted import PLOTTED
from tests.spark.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(sparkcache.__file__).parent / "ui" / "page.html"
MIB = 1 << 20
PLOTS = """
return Array.from(document.querySelectorAll("svg.sc-plot"), plot => [
    plot.querySelector("text").textContent,
    Number(plot.querySelector("line").getAttribute("y1")),
    plot.querySelector("polyline").getAttribute("points").split(" ")
        .map(point => Number(point.split(",")[1])),
])
"""


@contextmanager
def served(report: str) -> Iterator[str]:
    """Serve the page and a report; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_report = self.path.endswith("/json")
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(report.encode() if is_report else PAGE.read_bytes())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/sparkcache/"
        server.shutdown()
        thread.join()


def executor(name: str, counted: Metrics, *, is_gone: bool = False) -> dict[str, Any]:
    """Return what an executor has reported, as the tab gets it."""
    encoded = status.encode(f"{name}-1", 1 << 30, counted, [], [], [])
    return {"executor": name, "is_gone": is_gone, **json.loads(encoded)}


def report_of_executors(*executors: dict[str, Any]) -> str:
    return json.dumps({"executors": executors, "plotted": PLOTTED, "points": []})


def report_of(*counted: Metrics) -> str:
    """Return the report of a node that has counted one after the other."""
    topic = TopicMetrics(
        topic="s3://b#t",
        requests=counted[-1].requests,
        reads=counted[-1].reads,
        gets=counted[-1].gets,
        requested_bytes=counted[-1].requested_bytes,
        received_bytes=counted[-1].received_bytes,
    )
    encoded = status.encode("7-1", 1 << 30, counted[-1], [topic], [], [])
    points = [
        [1000.0 * number, *(status.published(one)[name] for name in PLOTTED)]
        for number, one in enumerate(counted)
    ]
    executor = {"executor": "1", "is_gone": False, **json.loads(encoded)}
    return json.dumps({"executors": [executor], "plotted": PLOTTED, "points": points})


@pytest.mark.usefixtures("chromium")
def test_nothing_is_saved_while_the_first_consumer_reads(tmp_path: Path) -> None:
    """What is loaded ahead was not asked for yet: it is not saved, and not lost."""
    begun = Metrics(gets=2, received_bytes=48 * MIB, requested_bytes=2 * MIB, reads=1)
    over = Metrics(gets=2, received_bytes=64 * MIB, requested_bytes=64 * MIB, reads=2)
    report = report_of(Metrics(), begun, over, begun)
    with served(report) as url, Browser(tmp_path) as browser:
        browser.open(url)
        browser.until("document.querySelectorAll('svg.sc-plot').length === 4")
        plots = {
            title.split(":")[0]: (title, zero, curve)
            for title, zero, curve in browser.run(PLOTS)
        }
        summary = browser.text("sc-saved"), browser.text("sc-money")
        (executor,) = browser.rows("sc-executors")
        (topic,) = browser.rows("sc-topics")
    for name, shown in (("GETs saved", "0"), ("Bytes saved", "0 B")):
        title, zero, curve = plots[name]
        assert title == f"{name}: {shown}"
        assert curve == [zero] * 4, "below zero"
    assert summary == ("0 GETs, 0 B", "$ 0.000000")
    assert (executor[7], executor[9]) == ("0", "0 B")
    assert (topic[5], topic[7]) == ("0", "0 B")


@pytest.mark.usefixtures("chromium")
def test_homes_of_a_cluster(tmp_path: Path) -> None:
    report = report_of_executors(
        executor("0", Metrics(requests=60, home_requests=60, home_bytes=48 * MIB)),
        executor(
            "1",
            Metrics(
                requests=50,
                home_requests=27,
                away_requests=13,
                away_bytes=12 * MIB,
                home_bytes=40 * MIB,
            ),
        ),
        executor("2", Metrics(home_requests=0, home_bytes=5 * MIB), is_gone=True),
    )
    with served(report) as url, Browser(tmp_path) as browser:
        browser.open(url)
        browser.until("document.querySelectorAll('#sc-homes tbody tr').length === 3")
        rows = browser.rows("sc-homes")
        shown = browser.run("return document.body.innerText")
        summary = browser.text("sc-home")
        picture = Path(os.environ.get("SPARKCACHE_PICTURES", tmp_path)) / "homes.png"
        browser.screenshot(picture)
    assert rows == [
        ["0", "48.0 MiB", "60", "0", "100.0 %", "0 B"],
        ["1", "40.0 MiB", "27", "13", "67.5 %", "12.0 MiB"],
        ["2", "0 B", "0", "0", "", "0 B"],
    ]
    assert summary == "87.0 % of 100 runs, 12.0 MiB fetched away from home"
    assert "Asked for at home: 87.0 %" in shown
    assert "Homes" in shown


@pytest.mark.usefixtures("chromium")
def test_where_nothing_has_a_home_nothing_is_said_of_homes(tmp_path: Path) -> None:
    alone = executor("driver", Metrics(requests=60, hits=40))
    for name in [key for key in alone["metrics"] if "home" in key or "away" in key]:
        del alone["metrics"][name]  # as in the log of an earlier version
    with served(report_of_executors(alone)) as url, Browser(tmp_path) as browser:
        browser.open(url)
        browser.until("document.querySelectorAll('#sc-executors tbody tr').length")
        shown = browser.run("return document.body.innerText")
    assert "Executors" in shown
    assert "home" not in shown.lower()
