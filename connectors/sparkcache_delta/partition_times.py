"""Times that partitions are named by, of which some say no zone.

Spark's Delta takes those to be in the session's zone, which nobody tells a data source.
They are what its writers wrote before they came to write UTC, and what delta-rs writes.
delta-rs reads them as in UTC, so those are told from others by what the log has.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as asked
from sparkcache_delta.schema_projection import physical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from zoneinfo import ZoneInfo

    from sparkcache_delta.table import DataFile

_ZONE = re.compile(r"Z|[+-]\d\d:?\d\d")
_DAY_LENGTH = len("2026-01-31")
_MAYBE = "?"  # behind a time that the log has both with a zone and without


def times(schema: pa.Schema, partitions: Iterable[str]) -> list[pa.Field]:
    """Return the columns of partitions whose values are instants."""
    fields = (schema.field(name) for name in partitions)
    return [field for field in fields if _is_instant(field.type)]


def without_zone(
    fields: Iterable[pa.Field], logged: Iterable[Mapping[str, str | None]]
) -> dict[str, dict[str, str]]:
    """Return the values that say no zone, of each column that has such.

    Of all values as the log has them: which text a file has, by that which Arrow
    writes.
    """
    rows = list(logged)
    found = {field.name: _without_zone(field, rows) for field in fields}
    return {name: texts for name, texts in found.items() if texts}


def as_logged(actions: pa.Table, local: Mapping[str, Mapping[str, str]]) -> pa.Table:
    """Return what files were added, with those values that say no zone as texts."""
    if not local:
        return actions
    values = actions.column("partition").combine_chunks()
    names = [field.name for field in values.type]
    children = [
        _told(values.field(name), local[name]) if name in local else values.field(name)
        for name in names
    ]
    told = pa.StructArray.from_arrays(children, names)
    at = actions.schema.get_field_index("partition")
    return actions.set_column(at, "partition", told)


def in_zone(file: DataFile, schema: pa.Schema, options: Mapping[str, str]) -> DataFile:
    """Return a file with values that all say a zone; raises ConfigError."""
    values = dict(file.values)
    for field in schema:
        text = values.get(field.name)
        if text is not None and _is_instant(field.type) and not _says_zone(text):
            values[field.name] = _in_zone(text, require_zone(options, field.name))
    return replace(file, values=values)


def require_zone(options: Mapping[str, str], column: str) -> ZoneInfo:
    """Return the zone of times that say none; raises ConfigError."""
    zone = asked.zone(options)
    if zone is None:
        raise ConfigError(
            f"partition column {column} has times that say no zone, which Spark's "
            f"Delta takes to be in the session's: give that, {asked.ZONE}=UTC or such "
            f"as {asked.ZONE}=Europe/Zurich, or leave the column out of {asked.COLUMNS}"
        )
    return zone


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _says_zone(text: str) -> bool:
    return _ZONE.search(text, _DAY_LENGTH) is not None


def _without_zone(
    field: pa.Field, rows: Iterable[Mapping[str, str | None]]
) -> dict[str, str]:
    texts = {row.get(physical_name(field), row.get(field.name)) for row in rows}
    zoned = {text for text in texts if text and _says_zone(text)}
    both = {text.removesuffix("Z") for text in _written(zoned, "UTC")}
    return {
        text: text + _MAYBE if text in both else text
        for text in _written((text for text in texts - zoned if text), None)
    }


def _told(times: pa.Array, local: Mapping[str, str]) -> pa.Array:
    texts = times.cast(pa.string()).to_pylist()
    told = [text and local.get(text.removesuffix("Z"), text) for text in texts]
    return pa.array(told, pa.string())


def _written(texts: Iterable[str], zone: str | None) -> list[str]:
    """Return times as Arrow writes them."""
    times = pa.array(list(texts), pa.string()).cast(pa.timestamp("us", zone))
    written: list[str] = times.cast(pa.string()).to_pylist()
    return written


def _in_zone(text: str, zone: ZoneInfo) -> str:
    time = datetime.fromisoformat(text.removesuffix(_MAYBE)).replace(tzinfo=zone)
    if text.endswith(_MAYBE) and time.utcoffset():
        raise ConfigError(
            f"option {asked.ZONE}={zone}: files of the partition {text[: -len(_MAYBE)]}"
            " have that both with a zone and without, and cannot be told apart: have "
            f"them written anew, or leave the column out of {asked.COLUMNS}"
        )
    try:
        time = time.astimezone(UTC)
    except OverflowError:
        raise ConfigError(
            f"option {asked.ZONE}={zone}: {text} of a partition is too far off there"
        ) from None
    return f"{time.replace(tzinfo=None).isoformat(' ', 'microseconds')}Z"
