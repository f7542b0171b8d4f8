"""Variants, geometries and geographies: structs with a mark, as pyspark knows them.

Source: pyspark's `to_arrow_type`, and VariantEncoding.md and Geospatial.md of Parquet.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_MARKS = frozenset({b"variant", b"geometry", b"geography"})
_VALUE, _METADATA = "value", "metadata"

VARIANT = pa.struct(
    [
        pa.field(_VALUE, pa.binary(), nullable=False),
        pa.field(_METADATA, pa.binary(), False, {b"variant": b"true"}),
    ]
)
"""The type of a variant."""


def geometry(srid: int) -> pa.DataType:
    """Return the type of geometries of a spatial reference system."""
    return _spatial(b"geometry", srid)


def geography(srid: int) -> pa.DataType:
    """Return the type of geographies of a spatial reference system."""
    return _spatial(b"geography", srid)


def is_marked(kind: pa.DataType) -> bool:
    """Return whether a type is one of these."""
    return pa.types.is_struct(kind) and any(
        _MARKS & (kind.field(index).metadata or {}).keys()
        for index in range(kind.num_fields)
    )


def from_stored(stored: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values of one of these types. Raises pa.ArrowInvalid.

    Args:
        stored: The groups of variants, or the bytes of geometries and geographies.
        kind: The type.

    """
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if kind == VARIANT:
        children = _variant(stored, [field.name for field in fields])
    else:
        srid = np.int32(_srid(kind))
        children = [pa.array(np.full(len(stored), srid)), stored.cast(pa.binary())]
    missing = stored.is_null() if stored.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=missing)


def _spatial(mark: bytes, srid: int) -> pa.DataType:
    metadata = {mark: b"true", b"srid": str(srid).encode()}
    return pa.struct(
        [
            pa.field("srid", pa.int32(), nullable=False),
            pa.field("wkb", pa.binary(), False, metadata),
        ]
    )


def _srid(kind: pa.DataType) -> int:
    return int(kind.field("wkb").metadata[b"srid"])


def _variant(stored: pa.Array, names: list[str]) -> list[pa.Array]:
    if not pa.types.is_struct(stored.type):
        raise pa.ArrowInvalid(f"{stored.type} in the place of a variant")
    found = [stored.type.field(index).name for index in range(stored.type.num_fields)]
    if sorted(found) != sorted(names):
        raise pa.ArrowInvalid(
            f"a variant with the parts {', '.join(found)}: it is shredded, which is "
            "not supported; write it with the parts metadata and value alone"
        )
    children = [stored.field(name).cast(pa.binary()) for name in names]
    known = stored.is_valid()
    for name, child in zip(names, children, strict=True):
        if child.filter(known).null_count:
            raise pa.ArrowInvalid(f"a variant without its part {name}")
    return children
