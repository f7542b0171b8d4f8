"""Parquet's own schema of a file, as a tree.

A type's annotation is a tuple such as `("TIMESTAMP", "MICROS", True)`. It comes from
the logical type or, in older files, from the converted type.

Source: parquet.thrift and LogicalTypes.md of the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcache_delta.footer_types import CHILDREN, LENGTH, TYPE, elements
from sparkcache_delta.thrift import unzigzag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache_delta.thrift import Field, Struct

GROUP = "group"

_REPETITION, _NAME, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 3, 4, 6, 7, 8, 10
_REPEATED = 2
_TYPES = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BINARY",
    "FIXED_LEN_BYTE_ARRAY",
)
_CONVERTED_TYPES: tuple[tuple[Any, ...], ...] = (
    ("STRING",),
    ("MAP",),
    ("MAP",),  # MAP_KEY_VALUE, which old writers use in the place of MAP
    ("LIST",),
    ("ENUM",),
    ("DECIMAL",),
    ("DATE",),
    ("TIME", "MILLIS", True),
    ("TIME", "MICROS", True),
    ("TIMESTAMP", "MILLIS", True),
    ("TIMESTAMP", "MICROS", True),
    *(
        ("INT", bits, is_signed)
        for is_signed in (False, True)
        for bits in (8, 16, 32, 64)
    ),
    ("JSON",),
    ("BSON",),
    ("INTERVAL",),
)
_LOGICAL_TYPES = {
    1: "STRING",
    2: "MAP",
    3: "LIST",
    4: "ENUM",
    5: "DECIMAL",
    6: "DATE",
    7: "TIME",
    8: "TIMESTAMP",
    10: "INT",
    11: "UNKNOWN",
    12: "JSON",
    13: "BSON",
    14: "UUID",
    15: "FLOAT16",
    16: "VARIANT",
    17: "GEOMETRY",
    18: "GEOGRAPHY",
}
_UNITS = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
_TRUE = 1  # the Thrift type of a true value


@dataclass(frozen=True)
class Node:
    """A column, or a group of columns.

    Attributes:
        name: Its name.
        physical: Its physical type, or GROUP.
        annotation: How its values are meant; empty if the file does not say it.
        length: The bytes of each value of fixed length; otherwise 0.
        is_repeated: Whether it is a list of values.
        children: The columns of a group.

    """

    name: str
    physical: str
    annotation: tuple[Any, ...] = ()
    length: int = 0
    is_repeated: bool = False
    children: tuple[Node, ...] = ()

    def __str__(self) -> str:
        if not self.annotation:
            return self.physical
        kind, *arguments = self.annotation
        listed = ", ".join(map(str, arguments))
        return f"{self.physical} ({kind}{f'({listed})' if listed else ''})"


def columns(footer: bytes) -> tuple[Node, ...]:
    """Return the columns of a file. Raises pa.ArrowInvalid."""
    return _node(iter(elements(footer))).children


def _node(rest: Iterator[Struct]) -> Node:
    """Return the next element, with the elements below it."""
    element = next(rest)
    count = _number(element.get(CHILDREN))
    return Node(
        element[_NAME].value.decode(errors="replace"),
        GROUP if count or TYPE not in element else _TYPES[_number(element[TYPE])],
        _annotation(element),
        _number(element.get(LENGTH)),
        _number(element.get(_REPETITION)) == _REPEATED,
        tuple(_node(rest) for _ in range(count)),
    )


def _annotation(element: Struct) -> tuple[Any, ...]:
    if _LOGICAL in element:
        ((number, field),) = element[_LOGICAL].value.items()
        kind = _LOGICAL_TYPES.get(number, f"logical type {number}")
        return kind, *_arguments(kind, field.value)
    if _CONVERTED not in element:
        return ()
    converted = _CONVERTED_TYPES[_number(element[_CONVERTED])]
    if converted == ("DECIMAL",):
        return (
            *converted,
            _number(element.get(_PRECISION)),
            _number(element.get(_SCALE)),
        )
    return converted


def _arguments(kind: str, fields: Struct) -> tuple[Any, ...]:
    match kind:
        case "DECIMAL":
            return _number(fields.get(2)), _number(fields.get(1))
        case "TIME" | "TIMESTAMP":
            (unit,) = fields[2].value
            return _UNITS.get(unit, str(unit)), fields[1].kind == _TRUE
        case "INT":
            return fields[1].value, fields[2].kind == _TRUE
        case "VARIANT":
            return (fields[1].value,) if 1 in fields else (0,)
        case "GEOMETRY" | "GEOGRAPHY":
            return (fields[1].value.decode(errors="replace"),) if 1 in fields else ("",)
        case _:
            return ()


def _number(field: Field | None) -> int:
    return 0 if field is None else unzigzag(field.value)
