"""The data files of a small table, passed in its options from `load()` to planning.

`load()` reads the log to find version and columns. Another process plans the scan;
without these options it would have to fetch and read the same log again. The text is an
Arrow table, so bounds keep their types, and reading it runs no code.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache.filters import Bounds
from sparkcache_delta.table import DataFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 256  # 10 to 30 KB, which every task gets with the options

_VALUES = pa.map_(pa.string(), pa.string())


def serialize(files: Sequence[DataFile]) -> str:
    """Return files without deleted rows as a text."""
    assert all(file.deleted is None for file in files)
    table = pa.table(
        {
            "uri": pa.array([file.uri for file in files], pa.string()),
            "modified_ms": pa.array([file.modified_ms for file in files], pa.int64()),
            "size_bytes": pa.array([file.size_bytes for file in files], pa.int64()),
            "rows": pa.array([file.rows for file in files], pa.int64()),
            "values": pa.array([list(file.values.items()) for file in files], _VALUES),
            "bounds": pa.array([_as_dicts(file.bounds) for file in files]),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b85encode(zlib.compress(sink.getvalue(), 1)).decode("ascii")


def parse(text: str) -> list[DataFile]:
    """Parse the output of `serialize`."""
    stream = zlib.decompress(base64.b85decode(text))
    return [
        DataFile(
            row["uri"],
            row["modified_ms"],
            row["size_bytes"],
            row["rows"],
            dict(row["values"]),
            {
                name: Bounds(**bounds)
                for name, bounds in row["bounds"].items()
                if bounds is not None
            },
        )
        for row in pa.ipc.open_stream(stream).read_all().to_pylist()
    ]


def _as_dicts(bounds: Mapping[str, Bounds]) -> dict[str, dict[str, Any]]:
    return {name: known._asdict() for name, known in bounds.items()}
