"""Parse Avro's notation of types to a tree.

Names are resolved and everything is checked here, so code that walks a tree needs no
checks:

- A union must be of null and one type, which is a nullable column. Spark has no type
  for other unions.
- A type that contains itself has no columns. Types that are used repeatedly can unfold
  to more columns than fit into memory, so a tree has at most MAX_NODES.
- An item of an array takes at least one byte, so the payload's length bounds the
  number of items.
- A logical type that is unknown, or not valid for its primitive type, is ignored.

Source: the specification of Apache Avro 1.12.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcache.errors import ConfigError
from sparkcache_pulsar.schemas.definitions import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_NODES,
    Array,
    Decimal,
    Definition,
    Enum,
    Fixed,
    Leaf,
    Map,
    Nullable,
    Record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PRIMITIVES = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
_LOGICAL = {
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
}
_UUID_BYTES = 16


def parse_definition(text: str) -> Definition:
    """Read a definition in JSON; raises ConfigError."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option valueSchema: not JSON: {error}") from error
    return _Parser().parse(schema, "", ()).definition


@dataclass(frozen=True, slots=True)
class _Part:
    """A definition, its number of nodes, and its minimum size in a payload."""

    definition: Definition
    nodes: int = 1
    least_bytes: int = 1


_Path = tuple[str, ...]


class _Parser:
    """Parser of one definition, which remembers the names defined so far.

    A name maps to None while its type is being parsed.
    """

    def __init__(self) -> None:
        self._named: dict[str, _Part | None] = {}

    def parse(self, schema: object, namespace: str, path: _Path) -> _Part:
        if len(path) > MAX_DEPTH:
            raise _error(path[:3], f"is nested more than {MAX_DEPTH} deep")
        if isinstance(schema, str):
            part = self._reference(schema, namespace, path)
        elif isinstance(schema, list):
            part = self._union(schema, namespace, path)
        elif isinstance(schema, dict):
            part = self._complex(schema, namespace, path)
        else:
            raise _error(path, f"{schema!r} is not a type")
        if part.nodes > MAX_NODES:
            raise _error(path, f"unfolds to more than {MAX_NODES} columns")
        return part

    def _reference(self, name: str, namespace: str, path: _Path) -> _Part:
        if name in PRIMITIVES:
            return _Part(Leaf(name), least_bytes=_LEAST_BYTES.get(name, 1))
        if name == "null":
            raise _error(path, "a column cannot be of type null; use a union with it")
        for known in (f"{namespace}.{name}" if namespace else name, name):
            if known in self._named:
                part = self._named[known]
                if part is None:
                    raise _error(path, f"the type {known} contains itself")
                return part
        raise _error(path, f"unknown type {name}")

    def _union(self, branches: list[object], namespace: str, path: _Path) -> _Part:
        others = [branch for branch in branches if not _is_null(branch)]
        nulls = len(branches) - len(others)
        if len(others) != 1 or nulls > 1:
            raise _error(
                path,
                f"a union of {len(branches)} types; a column must be of one type, or "
                "a union of null and one type",
            )
        part = self.parse(others[0], namespace, (*path, "union"))
        if not nulls:
            # Avro encodes the branch of such a union too, so it is not the plain type.
            raise _error(path, "a union of one type; name the type itself")
        nullable = Nullable(part.definition, _is_null(branches[0]))
        return _Part(nullable, part.nodes, 1)

    def _complex(self, schema: dict[str, Any], namespace: str, path: _Path) -> _Part:
        kind = schema.get("type")
        match kind:
            case "record" | "error":
                return self._new_name(schema, namespace, path, self._record)
            case "enum":
                return self._new_name(schema, namespace, path, self._enum)
            case "fixed":
                return self._new_name(schema, namespace, path, self._fixed)
            case "array":
                return self._array(schema, namespace, path)
            case "map":
                values = self.parse(schema.get("values"), namespace, (*path, "values"))
                return _Part(Map(values.definition), values.nodes + 1)
            case str() if kind in PRIMITIVES:
                least = _LEAST_BYTES.get(kind, 1)
                return _Part(_logical(schema, kind, None, path), least_bytes=least)
            case _:
                return self.parse(kind, namespace, (*path, "type"))

    def _new_name(
        self,
        schema: dict[str, Any],
        namespace: str,
        path: _Path,
        read: Callable[[dict[str, Any], str, _Path], _Part],
    ) -> _Part:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise _error(path, f"a {schema['type']} without a name")
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = str(schema.get("namespace", namespace) or "")
            name = f"{namespace}.{name}" if namespace else name
        if name in self._named:
            raise _error(path, f"the type {name} is defined twice")
        self._named[name] = None
        part = read(schema, namespace, path)
        self._named[name] = part
        return part

    def _record(self, schema: dict[str, Any], namespace: str, path: _Path) -> _Part:
        fields: list[tuple[str, Definition]] = []
        nodes, least_bytes = 1, 0
        for field in _list_of(schema, "fields", dict, path):
            name = field.get("name")
            if not isinstance(name, str) or not name:
                raise _error(path, "a field without a name")
            if name in dict(fields):
                raise _error(path, f"two fields {name}")
            part = self.parse(field.get("type"), namespace, (*path, name))
            fields.append((name, part.definition))
            nodes, least_bytes = nodes + part.nodes, least_bytes + part.least_bytes
        return _Part(Record(tuple(fields)), nodes, least_bytes)

    def _enum(self, schema: dict[str, Any], namespace: str, path: _Path) -> _Part:
        del namespace
        symbols = tuple(_list_of(schema, "symbols", str, path))
        if not symbols or len(set(symbols)) < len(symbols):
            raise _error(path, "an enum without symbols, or with duplicate symbols")
        return _Part(Enum(symbols))

    def _fixed(self, schema: dict[str, Any], namespace: str, path: _Path) -> _Part:
        del namespace
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise _error(path, f"a fixed of {size!r} bytes")
        return _Part(_logical(schema, "fixed", size, path), least_bytes=size)

    def _array(self, schema: dict[str, Any], namespace: str, path: _Path) -> _Part:
        items = self.parse(schema.get("items"), namespace, (*path, "items"))
        if not items.least_bytes:
            raise _error(path, "an array of items that take no bytes")
        return _Part(Array(items.definition), items.nodes + 1)


_LEAST_BYTES = {"float": 4, "double": 8}


def _is_null(schema: object) -> bool:
    return schema == "null" or schema == {"type": "null"}


def _logical(
    schema: dict[str, Any], primitive: str, size: int | None, path: _Path
) -> Definition:
    logical = schema.get("logicalType")
    plain = Leaf(primitive) if size is None else Fixed(size)
    if logical == "decimal" and primitive in {"bytes", "fixed"}:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int)):
            return plain
        if not 0 <= scale <= precision or precision < 1:
            return plain
        if precision > MAX_DIGITS:
            raise _error(
                path, f"a decimal of {precision} digits; Spark has {MAX_DIGITS} at most"
            )
        return Decimal(precision, scale, size)
    if logical == "uuid" and (primitive == "string" or size == _UUID_BYTES):
        return Leaf("string") if size is None else Fixed(size, is_uuid=True)
    if (primitive, logical) in _LOGICAL:
        return Leaf(primitive, str(logical))
    return plain


def _list_of(schema: dict[str, Any], name: str, kind: type, path: _Path) -> list[Any]:
    items = schema.get(name)
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise _error(path, f"a {schema['type']} without a list of {name}")
    return items


def _error(path: _Path, problem: str) -> ConfigError:
    prefix = f"{'.'.join(path)}: " if path else ""
    return ConfigError(f"option valueSchema: {prefix}{problem}")
