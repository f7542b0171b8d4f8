"""Cold scans by this code and by that of another revision, in turns.

    .venv/bin/python tests/benchmarks/pulsar_scan.py --json --before REV

Each revision has its own processes, node included, and its own checkout: a worktree
of Git in a temporary directory, which is removed in the end. Both read the same topic
from the same server. With `--before ''` there is no comparison.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.cold_scan import Topic

BEFORE = "4aa2bd73e785"
"""The last revision before cold scans were made faster."""

ROUNDS = 7
_TREE = Path(__file__).parents[2]
_PR_SET_CHILD_SUBREAPER = 36


def compare(topic: Topic, revision: str) -> dict[str, Any]:
    """Return the medians of both codes, and how many times as fast this one is."""
    from tests.benchmarks import cold_scan

    with ExitStack() as stack:
        trees = {"before": stack.enter_context(_checkout(revision)), "now": _TREE}
        endpoint = stack.enter_context(cold_scan.served(topic))
        codes = {
            name: stack.enter_context(closing(_Code(tree, topic, endpoint)))
            for name, tree in trees.items()
        }
        rounds = [
            {name: code.scan() for name, code in codes.items()}
            for _ in range(ROUNDS + 1)
        ][1:]
    spent = {
        what: {
            name: round(statistics.median(one[name][what] for one in rounds), 3)
            for name in codes
        }
        for what in ("seconds", "cpu_s")
    }
    seconds, cpu_s = spent["seconds"], spent["cpu_s"]
    return {
        "over_before": round(seconds["before"] / seconds["now"], 3),
        "cpu_over_before": round(cpu_s["before"] / cpu_s["now"], 3),
        **spent,
    }


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """Check a revision out in a temporary directory."""
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        _git("worktree", "add", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> None:
    done = subprocess.run(
        ["git", "-C", str(_TREE), *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")


class _Code:
    """A process that scans with the code of one checkout."""

    def __init__(self, tree: Path, topic: Topic, endpoint: str) -> None:
        path = os.pathsep.join((str(tree), str(tree / "connectors")))
        self._process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                endpoint,
                json.dumps(topic.options),
                str(topic.rows),
            ],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def scan(self) -> dict[str, float]:
        """Scan the topic; return the seconds, and those of processors."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("scan\n")
        stdin.flush()
        spent: dict[str, float] = json.loads(stdout.readline())
        return spent

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate()


def _serve(endpoint: str, options: str, rows: str) -> None:
    """Scan a topic once for each line of the standard input."""
    from tests.benchmarks import cold_scan

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    topic = cold_scan.Topic(json.loads(options), tuple, int(rows), 0, bool)
    with cold_scan.Executor(topic, endpoint) as executor:
        for _ in sys.stdin:
            began_s, cpu_began_s = time.perf_counter(), cold_scan.cpu_s(os.getpid())
            executor.cold()
            seconds = time.perf_counter() - began_s
            cpu_s = cold_scan.cpu_s(os.getpid()) - cpu_began_s
            print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
