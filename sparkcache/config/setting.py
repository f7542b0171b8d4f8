"""How a setting is described, checked, parsed and shown.

A setting is a field of a dataclass. Its type says which values are valid and how users
write them:

    ttl_s: Seconds = setting(15, "What it means to the user.")
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from sparkcache.errors import ConfigError
from sparkcache.units import (
    format_bytes,
    format_seconds,
    parse_bool,
    parse_bytes,
    parse_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Value: TypeAlias = "bool | int | float | str | None"
_D = TypeVar("_D", bound=Value)

_LONGEST_S = 1_000_000_000  # practically endless, but still a finite number


@dataclass(frozen=True, slots=True)
class _Notation:
    """How users write the values of a setting.

    Attributes:
        parse: Returns the value of a text; raises ValueError.
        show: Returns the text of a value.
        wanted: What `parse` accepts; None if its error says so.

    """

    parse: Callable[[str], Value]
    show: Callable[[Any], str] = str
    wanted: str | None = None


_SIZE = {"notation": _Notation(parse_bytes, format_bytes)}
_DURATION = {"notation": _Notation(parse_seconds, format_seconds)}
_INTEGER = {"notation": _Notation(int, wanted="a whole number")}
_FRACTION = {"notation": _Notation(float, wanted="a number")}
_BOOL = {"notation": _Notation(parse_bool, lambda value: str(value).lower())}
_TEXT = {"notation": _Notation(lambda raw: raw or None, lambda value: value or "")}
_NAME = {"notation": _Notation(str)}

Bytes: TypeAlias = Annotated[int, Meta(ge=0, extra=_SIZE)]
BlockBytes: TypeAlias = Annotated[int, Meta(ge=1024, extra=_SIZE)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=_LONGEST_S, extra=_DURATION)]
Timeout: TypeAlias = Annotated[float, Meta(ge=0.001, le=_LONGEST_S, extra=_DURATION)]
Share: TypeAlias = Annotated[float, Meta(ge=0.01, le=1, extra=_FRACTION)]
Count: TypeAlias = Annotated[int, Meta(ge=0, extra=_INTEGER)]
Attempts: TypeAlias = Annotated[int, Meta(ge=1, extra=_INTEGER)]
Loaders: TypeAlias = Annotated[int, Meta(ge=0, le=256, extra=_INTEGER)]
Flag: TypeAlias = Annotated[bool, Meta(extra=_BOOL)]
Text: TypeAlias = Annotated[str | None, Meta(extra=_TEXT)]
EngineName: TypeAlias = Annotated[Literal["runs", "ring"], Meta(extra=_NAME)]
PolicyName: TypeAlias = Annotated[
    Literal["next-read", "expected-reads", "lru"], Meta(extra=_NAME)
]


def setting(default: _D, doc: str) -> _D:
    """Return a dataclass field with a default and a documentation for users."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of a setting.

    Attributes:
        name: Name of the field.
        type: Annotated type of the field.
        default: Value unless it is set.
        doc: What the setting means.

    """

    name: str
    type: Any
    default: Any
    doc: str

    @property
    def option(self) -> str:
        """The name that users write: `maxBytes` for `max_bytes`."""
        return _option(self.name)

    def show(self, value: Value) -> str:
        """Return the text of a value, as users write it."""
        return self._notation.show(value)

    def parse(self, key: str, raw: str) -> Value:
        """Return the value of a text; raises ConfigError that names the key."""
        try:
            return self._notation.parse(raw)
        except ValueError as error:
            wanted = self._notation.wanted or str(error)
            raise ConfigError(f"{key}={raw!r}: must be {wanted}") from error

    def check(self, value: Value) -> None:
        """Raise ConfigError if a value is of the wrong type or out of range."""
        if _is_valid(value, self.type):
            return
        plain_type = get_args(self.type)[0]
        if get_origin(plain_type) is Literal:
            wanted = f"one of {', '.join(get_args(plain_type))}"
            raise ConfigError(f"{self.name}={value!r}: must be {wanted}")
        if _is_valid(value, plain_type):
            shown = f"{self.option}={self.show(value)}"
            raise ConfigError(f"{shown}: must be {self._limits()}")
        name = str(plain_type) if get_args(plain_type) else plain_type.__name__
        raise ConfigError(
            f"{self.name}={value!r}: must be {name}, such as {self.default!r}"
        )

    @property
    def _meta(self) -> Meta:
        meta: Meta = get_args(self.type)[1]
        return meta

    @property
    def _notation(self) -> _Notation:
        assert self._meta.extra is not None, "each type of a setting has a notation"
        notation: _Notation = self._meta.extra["notation"]
        return notation

    def _limits(self) -> str:
        least, most = self._meta.ge, self._meta.le
        if most is None:
            return f"at least {self.show(least)}"
        return f"{self.show(least)} to {self.show(most)}"


def settings_of(config_class: type) -> tuple[Setting, ...]:
    """Return the settings that a dataclass has, in the order of its fields."""
    return _settings_of(config_class)


@cache
def _settings_of(config_class: type) -> tuple[Setting, ...]:
    types = get_type_hints(config_class, include_extras=True)
    return tuple(
        Setting(spec.name, types[spec.name], spec.default, spec.metadata["doc"])
        for spec in fields(config_class)
    )


@cache
def _option(name: str) -> str:
    words = name.removesuffix("_s").split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])


def _is_valid(value: object, annotation: object) -> bool:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        return False
    return True


def suggest(name: str, known: Collection[str]) -> str:
    """Return the error text for an unknown name, with the most similar known one."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]}?" if close else f"known: {sorted(known)}"
    return f"unknown option {name}; {hint}"
