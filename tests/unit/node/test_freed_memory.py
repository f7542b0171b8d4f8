"""Memory that a loader no longer uses is returned to the kernel."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, whose memory no other test has touched.
PROGRAM = """
import os
import pyarrow as pa
from sparkcache.memory.freed_memory import return_freed_memory
from sparkcache.node.loader import _keep_freed_memory
from sparkcache.node.loader_limits import private_bytes

_keep_freed_memory()
pieces = [pa.array(range(100_000)) for _ in range(250)]
texts = [bytes(100_000) for _ in range(2_000)]
del pieces[::2], texts[::2], pieces, texts
before = private_bytes(os.getpid())
return_freed_memory()
print(before >> 20, private_bytes(os.getpid()) >> 20)
"""


def test_freed_memory_is_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, left = map(int, done.stdout.split())
    assert before > 128
    assert left < before - 64
