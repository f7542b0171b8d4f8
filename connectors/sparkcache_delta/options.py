"""Options of a scan of a table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from sparkcache.errors import ConfigError
from sparkcache.units import parse_bool

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "versionAsOf"
TIMESTAMP = "timestampAsOf"
COLUMNS = "columns"
WHERE = "where"
ZONE = "timeZone"
STARTING_VERSION = "startingVersion"
STARTING_TIMESTAMP = "startingTimestamp"
SKIP_CHANGES = "skipChangeCommits"
IGNORE_DELETES = "ignoreDeletes"
LATEST = "latest"
STREAM_NAMES = frozenset(
    {STARTING_VERSION, STARTING_TIMESTAMP, SKIP_CHANGES, IGNORE_DELETES}
)
NAMES = frozenset({VERSION, TIMESTAMP, COLUMNS, WHERE, ZONE}) | STREAM_NAMES

_TIME_OPTIONS = ("startingTime", "endingTime")


def check(options: Mapping[str, str]) -> None:
    """Raise ConfigError for options that are invalid for any table."""
    for name in _TIME_OPTIONS:
        if name in options:
            raise ConfigError(
                f"option {name}: a table has no time column of its own; name the "
                "column: where=\"day >= '2026-01-31'\""
            )
    zone(options)
    version(options)
    timestamp(options)
    starting_version(options)
    timestamp(options, STARTING_TIMESTAMP)
    skips(options, SKIP_CHANGES)
    skips(options, IGNORE_DELETES)
    for one, other in (VERSION, TIMESTAMP), (STARTING_VERSION, STARTING_TIMESTAMP):
        if one in options and other in options:
            raise ConfigError(f"options {one} and {other}: use only one of them")


def version(options: Mapping[str, str]) -> int | None:
    """Return the version to read; raises ConfigError."""
    text = options.get(VERSION)
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise ConfigError(
            f"option {VERSION}={text!r}: must be the number of a version, at least 0"
        )
    return int(text)


def starting_version(options: Mapping[str, str]) -> int | str | None:
    """Return the version at which a stream begins, or LATEST; raises ConfigError."""
    text = options.get(STARTING_VERSION)
    if text is None:
        return None
    if text.strip().isdecimal():
        return int(text)
    if text.strip().lower() == LATEST:
        return LATEST
    raise ConfigError(
        f"option {STARTING_VERSION}={text!r}: must be the number of a version, at "
        f"least 0, or {LATEST}; without it a stream begins with all rows of the table"
    )


def skips(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option to skip commits is set; raises ConfigError."""
    try:
        return parse_bool(options.get(name, "false"))
    except ValueError as error:
        raise ConfigError(f"option {name}={options[name]!r}: must be {error}") from None


def timestamp(options: Mapping[str, str], name: str = TIMESTAMP) -> datetime | None:
    """Return the time that an option sets; raises ConfigError."""
    text = options.get(name)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f"option {name}={text!r}: must be a time such as 2026-01-31 or "
            "2026-01-31T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=zone(options) or UTC)
    return time


def zone(options: Mapping[str, str]) -> ZoneInfo | None:
    """Return the zone of times without a zone, if it is set; raises ConfigError."""
    text = options.get(ZONE)
    if text is None:
        return None
    try:
        return ZoneInfo(text.strip())
    except (ValueError, OSError, LookupError):
        raise ConfigError(
            f"option {ZONE}={text!r}: must be the name of a time zone, such as UTC or "
            "Europe/Zurich"
        ) from None


def columns(options: Mapping[str, str]) -> list[str] | None:
    """Return the columns in the option: names with commas, or JSON; None for all."""
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
