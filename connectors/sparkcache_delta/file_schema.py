"""Everything that decoding a data file depends on, as a text that is part of run keys.

Scans share runs if they read the same columns of the same table with one schema, in any
version. The deletion vector of a file is part of the text, so rows that were decoded
with an older vector are never a hit.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache.connector import COLLATIONS
from sparkcache_delta.marked_structs import is_marked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.arrays import Bools

NO_SCHEMA = ""


@dataclass(frozen=True)
class FileSchema:
    """How rows of a data file become rows of its table.

    Attributes:
        columns: The columns to read, with their names and ids in files as metadata.
        by_id: Whether columns are found in files by their ids, not their names.
        values: Values of the partition columns, as texts.
        deleted: Which rows of the file are deleted, as packed bits; empty if none are.
        is_legacy: Whether dates and times of the file may be in the legacy calendar.

    """

    columns: pa.Schema
    by_id: bool = False
    values: Mapping[str, str | None] | None = None
    deleted: bytes = b""
    is_legacy: bool = False

    @classmethod
    def parse(cls, text: str) -> FileSchema:
        """Parse the output of `str`; an empty text is a schema without columns."""
        return _parse(text)

    def __str__(self) -> str:
        return json.dumps(
            {
                "schema": _encoded_schema(self.columns.serialize().to_pybytes()),
                "byId": self.by_id,
                "values": self.values,
                "deleted": _encoded(self.deleted) if self.deleted else "",
                "isLegacy": self.is_legacy,
            }
        )

    def for_file(
        self,
        values: Mapping[str, str | None],
        deleted: Bools | None,
        *,
        is_legacy: bool,
    ) -> FileSchema:
        """Return the schema with the properties of one file."""
        packed = b"" if deleted is None else np.packbits(deleted).tobytes()
        return replace(self, values=values, deleted=packed, is_legacy=is_legacy)

    def deleted_rows(self, first: int, rows: int) -> Bools | None:
        """Return which of `rows` rows from `first` on are deleted; None if none are."""
        if not self.deleted:
            return None
        packed = np.frombuffer(self.deleted, np.uint8)[first // 8 :]
        bits = np.unpackbits(packed, count=first % 8 + rows).astype(np.bool_)
        mask: Bools = bits[first % 8 :]
        return mask if mask.any() else None

    def plain_schema(self) -> pa.Schema:
        """Return the columns as Spark sees them: all are nullable."""
        return pa.schema([plain(field) for field in self.columns])


def plain(field: pa.Field) -> pa.Field:
    """Return a field, and all fields within it, nullable and without metadata.

    Only the collations of strings are kept.
    """
    collations = (field.metadata or {}).get(COLLATIONS)
    kept = None if collations is None else {COLLATIONS: collations}
    return pa.field(field.name, _plain_type(field.type), metadata=kept)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if is_marked(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([plain(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind


def _encoded(data: bytes) -> str:
    return b64encode(zlib.compress(data)).decode()


def _decoded(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


_encoded_schema = lru_cache(maxsize=16)(_encoded)  # the same for many files


@lru_cache(maxsize=16)
def _parse(text: str) -> FileSchema:
    if text == NO_SCHEMA:
        return FileSchema(pa.schema([]))
    fields = json.loads(text)
    return FileSchema(
        pa.ipc.read_schema(pa.py_buffer(_decoded(fields["schema"]))),
        fields["byId"],
        fields["values"],
        _decoded(fields["deleted"]) if fields["deleted"] else b"",
        fields["isLegacy"],
    )
