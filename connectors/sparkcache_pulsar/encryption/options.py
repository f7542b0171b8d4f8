"""The options that say how payloads are decrypted, as the text that travels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from sparkcache.errors import ConfigError
from sparkcache_pulsar.encryption.requirement import require_cryptography

if TYPE_CHECKING:
    from collections.abc import Mapping

PRIVATE_KEY, FAILURE_ACTION = "privateKey", "cryptoFailureAction"
OPTION_NAMES = frozenset({PRIVATE_KEY, FAILURE_ACTION})

_LINE = "encryption "
_FAIL, _CONSUME = "fail", "consume"


class Decryption(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where private keys are, and what becomes of messages that there is none for.

    Attributes:
        path: The file of the key that is tried, whatever its name.
        paths: Name and file of each key, by name; instead of `path`.
        consume: Whether such messages are delivered as they are, or are losses.

    """

    path: str = ""
    paths: tuple[tuple[str, str], ...] = ()
    consume: bool = False

    def with_rest(self, rest: str) -> str:
        """Return the text `rest`, with what `parse` takes in front if that is much."""
        if self == Decryption():
            return rest
        return f"{_LINE}{msgspec.json.encode(self).decode()}\n{rest}"

    @classmethod
    def parse(cls, text: str) -> tuple[Decryption, str]:
        """Take it off the front of a text, and return the rest as well."""
        if not text.startswith(_LINE):
            return cls(), text
        line, _, rest = text.partition("\n")
        return msgspec.json.decode(line.removeprefix(_LINE), type=cls), rest


def decryption(options: Mapping[str, str]) -> Decryption:
    """Return what options say; raises ConfigError."""
    consume = _is_consume(options.get(FAILURE_ACTION, _FAIL))
    if consume and options.get("valueSchema"):
        raise ConfigError(
            f"option {FAILURE_ACTION}={_CONSUME}: delivers payloads that are still "
            "encrypted, which the option valueSchema cannot decode; take one of them"
        )
    if PRIVATE_KEY not in options:
        return Decryption(consume=consume)
    require_cryptography()
    text = options[PRIVATE_KEY].strip()
    if text.startswith("{"):
        return Decryption(paths=_paths(text), consume=consume)
    return Decryption(path=_path(text), consume=consume)


def _is_consume(text: str) -> bool:
    action = text.strip().lower()
    if action not in {_FAIL, _CONSUME}:
        hint = ""
        if action == "discard":
            hint = "; to read on without such messages, set failOnDataLoss=false"
        raise ConfigError(
            f"option {FAILURE_ACTION}={text!r}: must be {_FAIL} or {_CONSUME}{hint}"
        )
    return action == _CONSUME


def _paths(text: str) -> tuple[tuple[str, str], ...]:
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option {PRIVATE_KEY}: no JSON: {error}") from error
    if not given or not all(isinstance(path, str) for path in given.values()):
        raise ConfigError(
            f'option {PRIVATE_KEY}: as JSON it must be {{"key name": "path", ...}}'
        )
    return tuple((name, _path(given[name])) for name in sorted(given))


def _path(text: str) -> str:
    """Return a file's path. What may be a key itself is not repeated."""
    if "-----BEGIN" in text or "\n" in text or text.startswith("data:"):
        raise ConfigError(
            f"option {PRIVATE_KEY}: is a key; must be the path of a file with one, "
            "because options are written to plans and logs"
        )
    path = unquote(urlsplit(text).path) if text.startswith("file:") else text
    if not path or "\0" in path:
        raise ConfigError(
            f"option {PRIVATE_KEY}={text!r}: must be the path of a PEM file with the "
            "private key, on every executor, or JSON of such paths by key name"
        )
    return path
