"""Parquet files with types that Arrow's writer does not write, by changed footers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from sparkcache_delta.footer_types import elements
from sparkcache_delta.thrift import Field, Struct, encoded, zigzag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

_NAME, _CONVERTED, _LOGICAL = 4, 6, 10  # of SchemaElement
_BYTE, _I32, _BINARY, _STRUCT = 3, 5, 8, 12


def converted(number: int) -> Struct:
    """Return what gives a column a converted type."""
    return {_CONVERTED: Field(_I32, zigzag(number))}


def logical(number: int, **arguments: int | str) -> Struct:
    """Return what gives a column a logical type; arguments are named `_1`, `_2`..."""
    fields = {int(name[1:]): _field(value) for name, value in arguments.items()}
    union = {number: Field(_STRUCT, fields)}
    return {_LOGICAL: Field(_STRUCT, union)}


def write(path: Path, rows: pa.Table, changes: Mapping[str, Struct]) -> None:
    """Write a file without Arrow's schema, and change elements of its schema."""
    pq.write_table(rows, path, store_schema=False)
    data = path.read_bytes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:-8]
    schema = elements(footer)
    before = _encoded(schema)
    assert footer.count(before) == 1
    for element in schema:
        element.update(changes.get(element[_NAME].value.decode(), {}))
    footer = footer.replace(before, _encoded(schema))
    path.write_bytes(
        data[:begin] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    )


def _encoded(schema: list[Struct]) -> bytes:
    return b"".join(piece for element in schema for piece in encoded(_STRUCT, element))


def _field(value: int | str) -> Field:
    if isinstance(value, str):
        return Field(_BINARY, value.encode())
    return Field(_BYTE, value)
