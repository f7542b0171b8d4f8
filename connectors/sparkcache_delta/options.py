"""What a scan of a table may be asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "versionAsOf"
TIMESTAMP = "timestampAsOf"
COLUMNS = "columns"
WHERE = "where"
NAMES = frozenset({VERSION, TIMESTAMP, COLUMNS, WHERE})

_OF_LOGS = ("startingTime", "endingTime")


def check(options: Mapping[str, str]) -> None:
    """Raise ConfigError for what no table understands."""
    for name in _OF_LOGS:
        if name in options:
            raise ConfigError(
                f"option {name}: a table has no time of its own; name the column: "
                "where=\"day >= '2026-01-31'\""
            )
    version(options)
    timestamp(options)
    if VERSION in options and TIMESTAMP in options:
        raise ConfigError(f"options {VERSION} and {TIMESTAMP}: give one of them alone")


def version(options: Mapping[str, str]) -> int | None:
    """Return the version that was asked for; raises ConfigError."""
    text = options.get(VERSION)
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise ConfigError(
            f"option {VERSION}={text!r}: must be the number of a version, from 0 on"
        )
    return int(text)


def timestamp(options: Mapping[str, str]) -> datetime | None:
    """Return the time that was asked for, in UTC if it says no zone."""
    text = options.get(TIMESTAMP)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f"option {TIMESTAMP}={text!r}: must be a time such as 2026-01-31 or "
            "2026-01-31T12:00:00Z"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def columns(options: Mapping[str, str]) -> list[str] | None:
    """Return the columns that were asked for: names with commas, or a JSON list."""
    text = options.get(COLUMNS, "").strip()
    if not text:
        return None
    names = _json_list(text) if text.startswith("[") else text.split(",")
    return list(dict.fromkeys(name.strip() for name in names))


def _json_list(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f'option {COLUMNS}={text!r}: must be JSON such as ["a", "b"]')
    return names
