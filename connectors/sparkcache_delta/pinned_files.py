"""The data files of a small table, passed in its options from `load()` to planning.

`load()` reads the log to find version and columns. Another process plans the scan;
without these options it would have to fetch and read the same log again.
"""

from __future__ import annotations

import base64
import pickle
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache_delta.table import DataFile

MOST = 256  # 10 to 30 KB, which every task gets with the options


def serialize(files: Sequence[DataFile]) -> str:
    """Return files as a text."""
    return base64.b85encode(zlib.compress(pickle.dumps(files), 1)).decode("ascii")


def parse(text: str) -> list[DataFile]:
    """Parse the output of `serialize`."""
    files: list[DataFile] = pickle.loads(zlib.decompress(base64.b85decode(text)))  # noqa: S301
    return files
