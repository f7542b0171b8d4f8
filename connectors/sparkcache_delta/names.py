"""Names of tables: their paths below the root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from sparkcache.connector import Selection
    from sparkcache.model import Position

ROOT = "."
"""The name of the table that lies in the root itself."""


def full_name(topic: str) -> str:
    """Return a path without needless slashes; raises ConfigError."""
    parts = [part for part in topic.split("/") if part not in ("", ".")]
    if ".." in parts or ":" in topic:
        raise ConfigError(
            f"option topic={topic!r}: must be the path of a table below that which is "
            "loaded, such as sales/orders; without it that itself is the table"
        )
    return "/".join(parts) or ROOT


def only(selection: Selection) -> str:
    """Return the one table that is meant; raises ConfigError."""
    if selection.pattern is None and len(selection.names) == 1:
        return selection.names[0]
    raise ConfigError(
        f"option {selection}: a scan is of one table, since each has columns of its "
        "own; load others by themselves, and union() them"
    )


def place(root: str, topic: str) -> str:
    """Return where a table lies."""
    return root if topic == ROOT else f"{root}/{topic}"


def below(root: str, place: str) -> str:
    """Return the name of the table that lies in a place below a root."""
    return place.removeprefix(f"{root}/")


def position(topic: str, text: str) -> Position:
    """Raise ConfigError: there are no positions."""
    of = f"of {topic}" if topic else "of a table"
    raise ConfigError(
        f"options startingOffsets and endingOffsets: {text!r}: the rows {of} have no "
        "positions; give versionAsOf, timestampAsOf or where, or a stream's "
        "startingVersion"
    )
