"""The data files of a small table, as its options carry them from `load()` to planning.

`load()` reads the log for version and columns. What is read is planned by another
process, which would read the same log once more, and ask the storage for all of it.
"""

from __future__ import annotations

import base64
import pickle
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache_delta.table import DataFile

MOST = 256  # tasks get the options, too: 10 to 30 KB then


def written(files: Sequence[DataFile]) -> str:
    """Return files as a text."""
    return base64.b85encode(zlib.compress(pickle.dumps(files), 1)).decode("ascii")


def parse(text: str) -> list[DataFile]:
    """Read what `written` wrote."""
    found: list[DataFile] = pickle.loads(zlib.decompress(base64.b85decode(text)))  # noqa: S301
    return found
