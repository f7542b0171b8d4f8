"""The columns that Spark finds in a Parquet file.

They follow from Parquet's own schema alone. All are nullable, at any depth.

Source: Spark's ParquetToSparkSchemaConverter, and what Spark 4.2 returned for a file of
each type.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as scan_options
from sparkcache_delta.marked_structs import VARIANT, geography, geometry
from sparkcache_delta.parquet_schema import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkcache_delta.parquet_schema import Node

_MOST_DIGITS = 38
_DIGITS = {"INT32": 9, "INT64": 18}
_INTEGERS = {
    ("INT32", 8, True): pa.int8(),
    ("INT32", 16, True): pa.int16(),
    ("INT32", 32, True): pa.int32(),
    ("INT64", 64, True): pa.int64(),
    ("INT32", 8, False): pa.int16(),
    ("INT32", 16, False): pa.int32(),
    ("INT32", 32, False): pa.int64(),
    ("INT64", 64, False): pa.decimal128(20, 0),
}
_PLAIN = {
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "INT96": pa.timestamp("us", "UTC"),
    "BINARY": pa.binary(),
    "FIXED_LEN_BYTE_ARRAY": pa.binary(),
}
_WHATEVER_IS_MEANT = {
    "BOOLEAN": pa.bool_(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "INT96": pa.timestamp("us", "UTC"),
}

# pyspark knows no others.
_GEOGRAPHIES = {"": 4326, "OGC:CRS84": 4326}
_GEOMETRIES = {**_GEOGRAPHIES, "EPSG:3857": 3857, "SRID:0": 0}


def field(column: Node) -> pa.Field:
    """Return a column as Spark reads it; raises ConfigError for types it refuses."""
    return _field(column, column.name)


def require_distinct(names: Sequence[str], owner: str) -> None:
    """Raise ConfigError for names that Spark does not distinguish."""
    counts, known = Counter(names), dict[str, str]()
    for name in names:
        first = known.setdefault(name.lower(), name)
        if first != name:
            found = f"both {first} and {name}, which are one name to Spark"
        elif counts[name] > 1:
            found = f"{counts[name]} columns of the name {name}"
        else:
            continue
        raise ConfigError(f"{owner}: has {found}; rename one of them in the files")


def _field(node: Node, path: str) -> pa.Field:
    kind = _type(node, path)
    return pa.field(node.name, pa.list_(kind) if node.is_repeated else kind)


def _type(node: Node, path: str) -> pa.DataType:
    kind = _group(node, path) if node.physical == GROUP else _primitive(node)
    if kind is None:
        raise _refused(node, path)
    return kind


def _primitive(node: Node) -> pa.DataType | None:
    known = _WHATEVER_IS_MEANT.get(node.physical)
    if known is not None:
        return known
    match node.physical, node.annotation:
        case _, () | ("UNKNOWN",):
            return _PLAIN.get(node.physical)
        case _, ("INT", bits, is_signed):
            return _INTEGERS.get((node.physical, bits, is_signed))
        case _, ("DECIMAL", digits, scale):
            return _decimal(node, digits, scale)
        case "INT32", ("DATE",):
            return pa.date32()
        case "INT64", ("TIMESTAMP", "MILLIS" | "MICROS", is_instant):
            return pa.timestamp("us", "UTC" if is_instant else None)
        case "BINARY", ("STRING",) | ("ENUM",) | ("JSON",):
            return pa.string()
        case "BINARY", ("BSON",):
            return pa.binary()
        case "BINARY", ("GEOMETRY", crs) if crs in _GEOMETRIES:
            return geometry(_GEOMETRIES[crs])
        case "BINARY", ("GEOGRAPHY", crs) if crs in _GEOGRAPHIES:
            return geography(_GEOGRAPHIES[crs])
        case _:
            return None


def _decimal(node: Node, digits: int, scale: int) -> pa.DataType | None:
    if 0 < digits <= _DIGITS.get(node.physical, _MOST_DIGITS):
        return pa.decimal128(digits, scale)
    return None


def _group(node: Node, path: str) -> pa.DataType | None:
    match node.annotation:
        case ():
            return _struct(node.children, path)
        case ("LIST",) if [child.is_repeated for child in node.children] == [True]:
            return pa.list_(_type(_element(node), path))
        case ("MAP",):
            return _map(node, path)
        case ("VARIANT", 1) if _is_whole(node):
            return VARIANT
        case _:
            return None


def _struct(children: Iterable[Node], path: str) -> pa.DataType:
    fields = [_field(child, f"{path}.{child.name}") for child in children]
    require_distinct([field.name for field in fields], f"column {path}")
    return pa.struct(fields)


def _element(node: Node) -> Node:
    """Return the element of a list; old writers have no group around it."""
    (repeated,) = node.children
    is_element = (
        repeated.physical != GROUP
        or len(repeated.children) != 1
        or repeated.name in ("array", f"{node.name}_tuple")
    )
    return repeated if is_element else repeated.children[0]


def _map(node: Node, path: str) -> pa.DataType | None:
    entries = [child for child in node.children if child.is_repeated]
    if len(node.children) != 1 or not entries or len(entries[0].children) != 2:
        return None
    key, value = entries[0].children
    return pa.map_(_field(key, path).type, _field(value, path).type)


def _is_whole(node: Node) -> bool:
    """Return whether a variant is not shredded."""
    parts = {child.name: child.physical for child in node.children}
    return parts == {"metadata": "BINARY", "value": "BINARY"}


def _refused(node: Node, path: str) -> ConfigError:
    return ConfigError(
        f"column {path} has the Parquet type {node}, {_reason(node)}, or name the "
        f"other columns in the option {scan_options.COLUMNS}"
    )


def _reason(node: Node) -> str:
    """Return why a type is refused, and what would do."""
    match node.annotation:
        case ("VARIANT", 1):
            return (
                "which is shredded and cannot be put together; write it with the parts "
                "metadata and value alone"
            )
        case ("GEOMETRY" | "GEOGRAPHY" as kind, *_):
            systems = _GEOMETRIES if kind == "GEOMETRY" else _GEOGRAPHIES
            known = " or ".join(filter(None, systems))
            return f"whose CRS pyspark does not know; write it with {known}"
        case ("TIMESTAMP", "NANOS", _):
            return "which Spark does not read; write it in microseconds"
        case ("DECIMAL", *_):
            digits = _DIGITS.get(node.physical, _MOST_DIGITS)
            return f"which Spark does not read; write it with 1 to {digits} digits"
        case _:
            return "which Spark does not read; write it with another type"
