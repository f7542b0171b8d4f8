"""What decoding a data file takes, as a text: it is part of what runs are known by.

So scans share runs if they read the same columns of the same table with one schema,
whatever its version, and what a deletion vector says of a file is never mistaken for
what it said before.
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.arrays import Bools

NO_FORM = ""


@dataclass(frozen=True)
class Form:
    """How rows of a table are made of rows of a data file.

    Attributes:
        schema: The columns wanted, with their names and ids in files as metadata.
        by_id: Whether columns are found in files by their ids, not their names.
        values: Those of the partition columns, as texts.
        deleted: Which rows of the file are none of the table's: bits, packed; empty
            if all are.
        is_old: Whether dates and times of the file may be of the old calendar.

    """

    schema: pa.Schema
    by_id: bool = False
    values: Mapping[str, str | None] | None = None
    deleted: bytes = b""
    is_old: bool = False

    @classmethod
    def parse(cls, text: str) -> Form:
        """Read what `str` has written; nothing is a form without columns."""
        return _parse(text)

    def __str__(self) -> str:
        return json.dumps(
            {
                "schema": _text(self.schema.serialize().to_pybytes()),
                "byId": self.by_id,
                "values": self.values,
                "deleted": _text(self.deleted) if self.deleted else "",
                "isOld": self.is_old,
            }
        )

    def of_file(
        self, values: Mapping[str, str | None], deleted: Bools | None, *, is_old: bool
    ) -> Form:
        """Return the form of one file."""
        packed = b"" if deleted is None else np.packbits(deleted).tobytes()
        return replace(self, values=values, deleted=packed, is_old=is_old)

    def deleted_rows(self, first: int, rows: int) -> Bools | None:
        """Tell which of some rows are deleted; None if none are."""
        if not self.deleted:
            return None
        packed = np.frombuffer(self.deleted, np.uint8)[first // 8 :]
        bits = np.unpackbits(packed, count=first % 8 + rows).astype(np.bool_)
        found: Bools = bits[first % 8 :]
        return found if found.any() else None

    def plain_schema(self) -> pa.Schema:
        """Return the columns as Spark sees them: all may be null."""
        return pa.schema([plain(field) for field in self.schema])


def plain(field: pa.Field) -> pa.Field:
    """Return a field that may be null, without metadata, and so all in it."""
    return pa.field(field.name, _plain_type(field.type))


def _plain_type(of: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(of):
        return pa.struct([plain(of.field(at)) for at in range(of.num_fields)])
    if pa.types.is_list(of):
        return pa.list_(pa.field("element", _plain_type(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(_plain_type(of.key_type), _plain_type(of.item_type))
    return of


def _text(data: bytes) -> str:
    return b64encode(zlib.compress(data)).decode()


def _bytes(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


@lru_cache(maxsize=16)
def _parse(text: str) -> Form:
    if text == NO_FORM:
        return Form(pa.schema([]))
    found = json.loads(text)
    return Form(
        pa.ipc.read_schema(pa.py_buffer(_bytes(found["schema"]))),
        found["byId"],
        found["values"],
        _bytes(found["deleted"]) if found["deleted"] else b"",
        found["isOld"],
    )
