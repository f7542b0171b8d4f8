"""A table with deletion vectors, which delta-rs reads but does not write.

Source: the Delta transaction log protocol, "Deletion Vector Format", and Roaring's
format specification.
"""

from __future__ import annotations

import json
import struct
import zlib
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

FILE_ROWS = 10

_FEATURES = ["deletionVectors"]
_ID = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": _FEATURES,
    "writerFeatures": _FEATURES,
}


class VectorTable:
    """A table of files of ten rows; at most nine have a vector, in a file each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._commits = count()
        self._files = count()
        (path / "_delta_log").mkdir(parents=True)
        self._commit([{"protocol": _PROTOCOL}, {"metaData": _metadata()}])

    def append(self, *deleted: list[int]) -> list[int]:
        """Commit a file for each, without some rows; return the ids of the others."""
        files = [(next(self._files), rows) for rows in deleted]
        self._commit([{"add": self._added(number, rows)} for number, rows in files])
        return [
            number * FILE_ROWS + row
            for number, rows in files
            for row in range(FILE_ROWS)
            if row not in rows
        ]

    def _commit(self, actions: list[dict[str, Any]]) -> None:
        log = self._path / "_delta_log" / f"{next(self._commits):020}.json"
        log.write_text("\n".join(map(json.dumps, actions)))

    def _added(self, number: int, deleted: list[int]) -> dict[str, Any]:
        ids = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
        path = self._path / f"{number:03}.parquet"
        pq.write_table(pa.table({"id": ids}), path)
        found = {
            "path": path.name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 1_780_000_000_000 + number,
            "dataChange": True,
            "stats": json.dumps({"numRecords": FILE_ROWS}),
        }
        if deleted:
            found["deletionVector"] = self._vector(number, deleted)
        return found

    def _vector(self, number: int, deleted: list[int]) -> dict[str, Any]:
        """Write a vector; its place is a UUID in base 85, here of one digit."""
        data = _bitmap(deleted)
        framed = struct.pack(">BI", 1, len(data)) + data
        framed += struct.pack(">I", zlib.crc32(data))
        (self._path / f"deletion_vector_{UUID(int=number)}.bin").write_bytes(framed)
        return {
            "storageType": "u",
            "pathOrInlineDv": f"{number:020}",
            "offset": 1,
            "sizeInBytes": len(data),
            "cardinality": len(deleted),
        }


def _bitmap(rows: list[int]) -> bytes:
    """Return an array of one Roaring bitmap of one container, of an array itself."""
    head = struct.pack("<IQI", 1681511377, 1, 0)
    head += struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    return head + struct.pack(f"<{len(rows)}H", *rows)


def _metadata() -> dict[str, Any]:
    return {
        "id": "one",
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "schemaString": json.dumps({"type": "struct", "fields": [_ID]}),
        "configuration": {"delta.enableDeletionVectors": "true"},
    }
