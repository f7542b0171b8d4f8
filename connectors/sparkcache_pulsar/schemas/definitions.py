"""Types of Avro's notation, as a tree.

The same notation describes the payloads of AVRO and of JSON schemas; see notation.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

MAX_NODES = 10_000
"""Columns that a type unfolds to, at most."""

MAX_DEPTH = 64
"""Types within types, at most."""

MAX_DIGITS = 38
"""Digits of a decimal, in Spark as in Arrow's decimal128."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive type; `logical` is its meaning, if that is another."""

    primitive: str
    logical: str = ""


@dataclass(frozen=True, slots=True)
class Fixed:
    """So many bytes; a UUID if `is_uuid`."""

    size: int
    is_uuid: bool = False


@dataclass(frozen=True, slots=True)
class Decimal:
    """An unscaled number in bytes, big-endian; `size` of them, or any if None."""

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Enum:
    """One of some symbols."""

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Named fields in the order in which they are encoded."""

    fields: tuple[tuple[str, Definition], ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items."""

    items: Definition


@dataclass(frozen=True, slots=True)
class Map:
    """Values by strings."""

    values: Definition


@dataclass(frozen=True, slots=True)
class Nullable:
    """A union with null, which is the first branch or the second."""

    of: Definition
    null_first: bool


Definition: TypeAlias = Leaf | Fixed | Decimal | Enum | Record | Array | Map | Nullable
