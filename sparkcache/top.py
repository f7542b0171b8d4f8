"""`python -m sparkcache.top`: show the nodes of this machine in a terminal.

    python -m sparkcache.top [--once] [--seconds N]

Shows the nodes of this user, for all applications. It does not need Spark.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from sparkcache.errors import CacheUnavailable
from sparkcache.metrics import Metrics
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.messages import GetMetrics, MetricsReply, ToTask
from sparkcache.ui.tables import as_text, node_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIMEOUT_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"
_COLUMNS = (
    "node",
    "requests",
    "hit_ratio",
    "misses",
    "waits",
    "in_flight",
    "gets",
    "saved_gets",
    "received_bytes",
    "saved_bytes",
    "runs",
    "held_bytes",
    "pinned_bytes",
    "not_admitted",
)
_OF_HOMES = ("home_bytes", "home_requests", "away_requests", "home_ratio", "away_bytes")


def main(arguments: list[str] | None = None) -> None:
    """Show the nodes, repeatedly until interrupted unless `--once` is set."""
    parser = argparse.ArgumentParser(
        prog="python -m sparkcache.top", description="Show the nodes of this machine."
    )
    parser.add_argument("--once", action="store_true", help="show them once and exit")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="seconds between updates"
    )
    chosen = parser.parse_args(arguments)
    try:
        while not chosen.once:
            print(_CLEAR + picture(), flush=True)
            time.sleep(chosen.seconds)
        print(picture())
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the pipe has left


def picture() -> str:
    """Return a table of the current nodes."""
    return table(dict(nodes()))


def table(by_pid: Mapping[int, Metrics]) -> str:
    """Return a table of nodes, one line each, with their sum.

    It tells of homes if a run that was asked for has one, as it has on a cluster.
    """
    if not by_pid:
        return "no node of this user is running on this machine"
    total = sum(by_pid.values(), Metrics())
    rows = [node_row(str(pid), metrics) for pid, metrics in sorted(by_pid.items())]
    if len(rows) > 1:
        rows.append(node_row("all", total))
    has_homes = total.home_requests + total.away_requests > 0
    return as_text(rows, _COLUMNS + _OF_HOMES if has_homes else _COLUMNS)


def nodes() -> Iterator[tuple[int, Metrics]]:
    """Yield the process id and metrics of each node that answers."""
    seen = set()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "sparkcache.node" not in command:
            continue
        directory = Path(command[command.index("sparkcache.node") + 1])
        if directory not in seen:  # its loaders, whose ids are higher, share it
            seen.add(directory)
            metrics = _request_metrics(Address(directory))
            if metrics is not None:
                yield process.pid, metrics


def _request_metrics(address: Address) -> Metrics | None:
    """Return the metrics of a node, or None if it does not answer."""
    try:
        channel: Channel[ToTask] = Channel(address.connect(_TIMEOUT_S), ToTask)
    except OSError:
        return None
    with closing(channel):
        try:
            channel.send(GetMetrics())
            reply, _ = channel.receive()
        except CacheUnavailable:
            return None
    return reply.metrics if isinstance(reply, MetricsReply) else None


if __name__ == "__main__":
    main()
