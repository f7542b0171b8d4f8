"""The syntax of the option `where`: comparisons of a column, joined by `and`.

    comparison    column sign value | column in (value, ...) | column is [not] null
    column        a word, or any text in backticks
    value         a number, true, false, or any text in single quotes
    sign          = != <> < <= > >=

Keywords are in any case. A quote within a text or name is doubled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from sparkcache.filters import IN, NOT_NULL, NULL, SIGNS

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,)
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d]\w*)
    )""",
    re.VERBOSE,
)


class Value(NamedTuple):
    """A value as it is written, without its quotes."""

    text: str
    is_quoted: bool


class Written(NamedTuple):
    """A comparison as it is written; the sign is one of SIGNS, or the other three."""

    column: str
    sign: str
    values: tuple[Value, ...] = ()


def parse(text: str) -> list[Written]:
    """Parse comparisons; raises ValueError, which says what is missing or wrong."""
    return list(_Parser(text).comparisons())


class _Parser:
    """Parser of comparisons, which takes one token after another."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))

    def comparisons(self) -> Iterator[Written]:
        yield self._comparison()
        while self._tokens:
            self._expect("and")
            yield self._comparison()

    def _comparison(self) -> Written:
        kind, column = self._next()
        if kind not in ("word", "quoted"):
            raise ValueError(f"{column!r} is not the name of a column")
        _, sign = self._next()
        sign = {"<>": "!="}.get(sign, sign.lower())
        if sign == "is":
            is_not = self._accepts("not")
            self._expect("null")
            return Written(column, NOT_NULL if is_not else NULL)
        if sign == IN:
            self._expect("(")
            values = [self._value()]
            while self._accepts(","):
                values.append(self._value())
            self._expect(")")
            return Written(column, IN, tuple(values))
        if sign not in SIGNS:
            raise ValueError(f"{sign!r} is not a comparison")
        return Written(column, sign, (self._value(),))

    def _value(self) -> Value:
        kind, text = self._next()
        is_word = kind == "word" and text.lower() in ("true", "false")
        if kind not in ("text", "number") and not is_word:
            raise ValueError(f"{text!r} is not a value")
        return Value(text, kind == "text")

    def _expect(self, token: str) -> None:
        if not self._accepts(token):
            found = repr(self._tokens[0][1]) if self._tokens else "the end"
            raise ValueError(f"{token!r} is missing before {found}")

    def _accepts(self, token: str) -> bool:
        is_next = bool(self._tokens) and self._tokens[0][1].lower() == token
        if is_next and self._tokens[0][0] in ("word", "sign"):
            del self._tokens[0]
            return True
        return False

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            raise ValueError("the text ends too early")
        return self._tokens.pop(0)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and content of each token."""
    offset = 0
    text = text.rstrip()
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[offset:]!r} cannot be parsed")
        kind, token = match.lastgroup, match[match.lastgroup]
        if kind in ("text", "quoted"):
            quote, token = token[0], token[1:-1]
            token = token.replace(2 * quote, quote)
        yield kind, token
        offset = match.end()
