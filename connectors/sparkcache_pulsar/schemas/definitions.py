"""Types of Avro's notation, as a tree.

The same notation describes the payloads of AVRO and of JSON schemas; see notation.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

MAX_NODES = 10_000
"""Maximum number of columns that a type unfolds to."""

MAX_DEPTH = 64
"""Maximum number of nested types."""

MAX_DIGITS = 38
"""Maximum number of digits of a decimal, in Spark and in Arrow's decimal128."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive type; `logical` is its logical type, if it has one."""

    primitive: str
    logical: str = ""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of bytes; a UUID if `is_uuid`."""

    size: int
    is_uuid: bool = False


@dataclass(frozen=True, slots=True)
class Decimal:
    """An unscaled big-endian number of `size` bytes; of any size if None."""

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Enum:
    """One of a set of symbols."""

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
    """A map from strings to values."""

    values: Definition


@dataclass(frozen=True, slots=True)
class Nullable:
    """A union with null, which is the first branch or the second."""

    inner: Definition
    null_first: bool


Definition: TypeAlias = Leaf | Fixed | Decimal | Enum | Record | Array | Map | Nullable
