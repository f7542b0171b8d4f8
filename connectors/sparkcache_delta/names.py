"""Names of tables: their paths below the root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from sparkcache.connector import Selection
    from sparkcache.model import Position

ROOT = "."
"""The name of the table that is stored in the root itself."""


def full_name(topic: str) -> str:
    """Return a table's path without redundant slashes; raises ConfigError."""
    parts = [part for part in topic.split("/") if part not in ("", ".")]
    if ".." in parts or ":" in topic:
        raise ConfigError(
            f"option topic={topic!r}: must be the path of a table below the loaded "
            "path, such as sales/orders; omit it if the loaded path is the table"
        )
    return "/".join(parts) or ROOT


def only_topic(selection: Selection) -> str:
    """Return the one table that is selected; raises ConfigError."""
    if selection.pattern is None and len(selection.names) == 1:
        return selection.names[0]
    raise ConfigError(
        f"option {selection}: a scan reads one table, since each table has its own "
        "columns; load each table separately and union() them"
    )


def table_uri(root: str, topic: str) -> str:
    """Return the URI of a table."""
    return root if topic == ROOT else f"{root}/{topic}"


def topic_of_uri(root: str, uri: str) -> str:
    """Return the name of the table at a URI below the root."""
    return uri.removeprefix(f"{root}/")


def position(topic: str, text: str) -> Position:
    """Raise ConfigError: the rows of a table have no positions."""
    table = topic or "a table"
    raise ConfigError(
        f"options startingOffsets and endingOffsets: {text!r}: the rows of {table} "
        "have no positions; use versionAsOf, timestampAsOf or where, or for a stream "
        "startingVersion"
    )
