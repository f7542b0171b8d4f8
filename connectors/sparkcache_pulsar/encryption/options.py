"""The options for decrypting payloads."""

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

_FAIL, _CONSUME = "fail", "consume"


class Decryption(msgspec.Struct, frozen=True, omit_defaults=True):
    """Paths of private keys, and how to treat messages that no key decrypts.

    Attributes:
        path: The file of the only key, which is used for every key name.
        paths: Name and file of each key, sorted by name; instead of `path`.
        consume: Whether messages without a key are delivered encrypted; else they are
            losses.

    """

    path: str = ""
    paths: tuple[tuple[str, str], ...] = ()
    consume: bool = False


def decryption(options: Mapping[str, str]) -> Decryption:
    """Read the options for decryption; raises ConfigError."""
    consume = _is_consume(options.get(FAILURE_ACTION, _FAIL))
    if consume and options.get("valueSchema"):
        raise ConfigError(
            f"option {FAILURE_ACTION}={_CONSUME}: delivers payloads that are still "
            "encrypted, which the option valueSchema cannot decode; use only one of "
            "the two options"
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
            hint = "; to skip such messages, set failOnDataLoss=false"
        raise ConfigError(
            f"option {FAILURE_ACTION}={text!r}: must be {_FAIL} or {_CONSUME}{hint}"
        )
    return action == _CONSUME


def _paths(text: str) -> tuple[tuple[str, str], ...]:
    try:
        raw_paths: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option {PRIVATE_KEY}: not JSON: {error}") from error
    if not raw_paths or not all(isinstance(path, str) for path in raw_paths.values()):
        raise ConfigError(
            f'option {PRIVATE_KEY}: as JSON it must be {{"key name": "path", ...}}'
        )
    return tuple((name, _path(raw_paths[name])) for name in sorted(raw_paths))


def _path(text: str) -> str:
    """Return a file's path; errors do not repeat a text that may be a key itself."""
    if "-----BEGIN" in text or "\n" in text or text.startswith("data:"):
        raise ConfigError(
            f"option {PRIVATE_KEY}: the value is a key; it must be the path of a file "
            "with a key, because options are written to plans and logs"
        )
    path = unquote(urlsplit(text).path) if text.startswith("file:") else text
    if not path or "\0" in path:
        raise ConfigError(
            f"option {PRIVATE_KEY}={text!r}: must be the path of a PEM file with the "
            "private key, on every executor, or JSON of such paths by key name"
        )
    return path
