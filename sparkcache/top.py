"""`python -m sparkcache.top`: the nodes of this machine, in a terminal.

    python -m sparkcache.top [--once] [--seconds N]

Those of this user, of whichever applications; nothing of Spark is needed.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcache.errors import CacheUnavailable
from sparkcache.metrics import Metrics
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.messages import GetMetrics, MetricsReply, ToTask
from sparkcache.ui.tables import as_text, node_row

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def main(arguments: list[str] | None = None) -> None:
    """Show the nodes, again and again until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m sparkcache.top", description="The nodes of this machine."
    )
    parser.add_argument("--once", action="store_true", help="show them once")
    parser.add_argument("--seconds", type=float, default=1.0, help="how often else")
    chosen = parser.parse_args(arguments)
    try:
        while not chosen.once:
            print(_CLEAR + picture(), flush=True)
            time.sleep(chosen.seconds)
        print(picture())
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        sys.stderr.close()  # who read it has seen enough


def picture() -> str:
    """Return the nodes there are now, one line each, and what they add up to."""
    found = dict(nodes())
    if not found:
        return "no node: none runs on this machine as this user"
    rows = [node_row(str(pid), metrics) for pid, metrics in sorted(found.items())]
    if len(rows) > 1:
        rows.append(node_row("all", sum(found.values(), Metrics())))
    return as_text(rows, _COLUMNS)


def nodes() -> Iterator[tuple[int, Metrics]]:
    """Yield each node's process and metrics; those that do not answer are left out."""
    seen = set()
    for pid in sorted(int(p.name) for p in Path("/proc").glob("[0-9]*")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if b"sparkcache.node" not in command:
            continue
        directory = Path(command[command.index(b"sparkcache.node") + 1].decode())
        if directory not in seen:  # its loaders, which come later, have the same
            seen.add(directory)
            metrics = _ask(Address(directory))
            if metrics is not None:
                yield pid, metrics


def _ask(address: Address) -> Metrics | None:
    try:
        channel: Channel[ToTask] = Channel(address.connect(_TIMEOUT_S), ToTask)
    except OSError:
        return None
    with closing(channel):
        try:
            channel.send(GetMetrics())
            answer, _ = channel.receive()
        except CacheUnavailable:
            return None
    return answer.metrics if isinstance(answer, MetricsReply) else None


if __name__ == "__main__":
    main()
