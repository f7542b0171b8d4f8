"""Project arrays from the schema of a data file to the schema of its table.

A file may have columns under other names (column mapping, case), narrower ones (widened
since), fewer (added since) or more (dropped since); the same in structs at any depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache_delta.file_schema import plain
from sparkcache_delta.marked_structs import from_stored, is_marked

if TYPE_CHECKING:
    from collections.abc import Iterable

PHYSICAL_NAME = b"delta.columnMapping.physicalName"
ID = b"delta.columnMapping.id"
_FIELD_ID = b"PARQUET:field_id"


def physical_name(field: pa.Field) -> str:
    """Return the name that a table's column has in files."""
    metadata: dict[bytes, bytes] = field.metadata or {}
    physical = metadata.get(PHYSICAL_NAME)
    name: str = field.name
    return name if physical is None else physical.decode()


def find_field(
    field: pa.Field, stored: Iterable[pa.Field], *, by_id: bool
) -> int | None:
    """Return the index of a table's field among the fields of a file, or None.

    As in Spark, a name may differ in case if it is the only such name. Raises
    pa.ArrowInvalid if several fields have the very name, or if several names differ in
    case and none matches exactly.
    """
    if by_id:
        return _index_of_id((field.metadata or {}).get(ID), stored)
    name = physical_name(field)
    names: list[str] = [other.name for other in stored]
    candidates = {
        other: index
        for index, other in enumerate(names)
        if other.lower() == name.lower()
    }
    exact = [index for index, other in enumerate(names) if other == name]
    if len(exact) > 1:
        raise pa.ArrowInvalid(
            f"{len(exact)} columns of the name {name}; rename all but one of them in "
            "the file"
        )
    if exact or not candidates:
        return exact[0] if exact else None
    if len(candidates) > 1:
        raise pa.ArrowInvalid(
            f"column {name} could be {' or '.join(candidates)}: they differ only in "
            "case"
        )
    (found,) = candidates.values()
    return found


def project(array: pa.Array, field: pa.Field, *, by_id: bool) -> pa.Array:
    """Return an array converted to a table's field. Raises pa.ArrowInvalid."""
    kind = field.type
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if is_marked(kind):
        return from_stored(array, kind)
    if pa.types.is_struct(kind):
        return _struct(array, kind, by_id=by_id)
    if pa.types.is_list(kind):
        values = project(array.values, kind.value_field, by_id=by_id)
        element = plain(kind.value_field).with_name("element")
        return pa.ListArray.from_arrays(
            array.offsets, values, pa.list_(element), mask=_nulls(array)
        )
    if pa.types.is_map(kind):
        keys = project(array.keys, kind.key_field, by_id=by_id)
        items = project(array.items, kind.item_field, by_id=by_id)
        plain_type = plain(field).type
        return pa.MapArray.from_arrays(
            array.offsets, keys, items, plain_type, mask=_nulls(array)
        )
    if pa.types.is_string(kind) and pa.types.is_binary(array.type):
        return array.view(kind)  # as in Spark, it need not be UTF-8
    return array if array.type == kind else array.cast(kind)


def _index_of_id(field_id: bytes | None, stored: Iterable[pa.Field]) -> int | None:
    for index, other in enumerate(stored):
        if field_id is not None and (other.metadata or {}).get(_FIELD_ID) == field_id:
            return index
    return None


def _struct(array: pa.Array, kind: pa.DataType, *, by_id: bool) -> pa.Array:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    stored = [array.type.field(index) for index in range(array.type.num_fields)]
    children = []
    for field in fields:
        index = find_field(field, stored, by_id=by_id)
        if index is None:
            children.append(pa.nulls(len(array), plain(field).type))
        else:
            children.append(project(array.field(index), field, by_id=by_id))
    plain_fields = [plain(field) for field in fields]
    return pa.StructArray.from_arrays(children, fields=plain_fields, mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
