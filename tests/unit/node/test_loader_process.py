"""What a loader keeps of the node that forks it, and how often one is forked."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.seccomp import needs_numbers

DETACH = """
import fcntl, os, resource
from sparkcache.node.loader import _detach

high = fcntl.fcntl(1, fcntl.F_DUPFD, 900)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
mine = os.dup(1)
os.dup(1)
_detach({0, 1, 2, mine})
left = []
for fd in range(1000):
    try:
        os.fstat(fd)
        left.append(fd)
    except OSError:
        pass
print(left == [0, 1, 2, mine], left)
"""

FORK = """
import asyncio, errno, logging, sys
from sparkcache.config import NodeConfig
from sparkcache.node.loader_pool import LoaderPool
from tests.seccomp import CLONE, deny

class Delays(logging.Handler):
    def emit(self, record):
        delays.append(record.args[0])
        if len(delays) == 4:
            loop.stop()

delays = []
logging.getLogger("sparkcache").addHandler(Delays())
deny(CLONE, errno.EAGAIN)
loop = asyncio.new_event_loop()
LoaderPool(loop, NodeConfig(), 1, lambda event: None).ensure_one()
loop.run_forever()
print(*delays)
"""


def test_a_loader_closes_descriptors_above_the_limit_too() -> None:
    """The limit may have been lowered since; or it is too large to try them all."""
    assert output(DETACH).startswith("True")


@needs_numbers
def test_loaders_that_cannot_be_forked_are_tried_less_and_less_often() -> None:
    assert output(FORK).split() == ["0.1", "0.2", "0.4", "0.8"]


def output(code: str) -> str:
    """Run a program and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return done.stdout
