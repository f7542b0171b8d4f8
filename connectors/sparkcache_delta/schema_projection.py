"""Arrays as a file has them become arrays as the table has them.

A file may have columns under other names (column mapping, case), narrower ones (widened
since), fewer (added since) or more (dropped since); the same in structs at any depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache_delta.file_schema import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

PHYSICAL_NAME = b"delta.columnMapping.physicalName"
ID = b"delta.columnMapping.id"
_FIELD_ID = b"PARQUET:field_id"


def physical_name(field: pa.Field) -> str:
    """Return the name of a table's column in files."""
    metadata: dict[bytes, bytes] = field.metadata or {}
    given = metadata.get(PHYSICAL_NAME)
    name: str = field.name
    return name if given is None else given.decode()


def find(field: pa.Field, stored: Iterable[pa.Field], *, by_id: bool) -> int | None:
    """Return which of the fields of a file is a table's; None if none is.

    As in Spark a name may differ in case, if there is just one such; raises
    pa.ArrowInvalid if there are several, and none is the same.
    """
    if by_id:
        return _with_id((field.metadata or {}).get(ID), stored)
    name = physical_name(field)
    alike = {
        other.name: index
        for index, other in enumerate(stored)
        if other.name.lower() == name.lower()
    }
    if name in alike or not alike:
        return alike.get(name)
    if len(alike) > 1:
        raise pa.ArrowInvalid(
            f"column {name} could be {' or '.join(alike)}: they differ in case alone"
        )
    (found,) = alike.values()
    return found


def conform(array: pa.Array, field: pa.Field, *, by_id: bool) -> pa.Array:
    """Return an array of the type of a table's field. Raises pa.ArrowInvalid."""
    kind = field.type
    if pa.types.is_struct(kind):
        return _struct(array, kind, by_id=by_id)
    if pa.types.is_list(kind):
        values = conform(array.values, kind.value_field, by_id=by_id)
        element = plain(kind.value_field).with_name("element")
        return pa.ListArray.from_arrays(
            array.offsets, values, pa.list_(element), mask=_nulls(array)
        )
    if pa.types.is_map(kind):
        keys = conform(array.keys, kind.key_field, by_id=by_id)
        items = conform(array.items, kind.item_field, by_id=by_id)
        of = plain(field).type
        return pa.MapArray.from_arrays(
            array.offsets, keys, items, of, mask=_nulls(array)
        )
    return array if array.type == kind else array.cast(kind)


def _with_id(number: bytes | None, stored: Iterable[pa.Field]) -> int | None:
    for index, other in enumerate(stored):
        if number is not None and (other.metadata or {}).get(_FIELD_ID) == number:
            return index
    return None


def _struct(array: pa.Array, kind: pa.DataType, *, by_id: bool) -> pa.Array:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    stored = [array.type.field(at) for at in range(array.type.num_fields)]
    children = []
    for field in fields:
        index = find(field, stored, by_id=by_id)
        if index is None:
            children.append(pa.nulls(len(array), plain(field).type))
        else:
            children.append(conform(array.field(index), field, by_id=by_id))
    kept = [plain(field) for field in fields]
    return pa.StructArray.from_arrays(children, fields=kept, mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
