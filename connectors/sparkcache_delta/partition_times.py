"""Partition values that are times without a time zone.

Spark's Delta reads such times in the zone of the session, which a data source does not
get to know. Older versions of Spark's Delta, which did not write UTC yet, and delta-rs
write them. delta-rs reads them as UTC, so the text in the log has to show which times
have no zone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as scan_options
from sparkcache_delta.schema_projection import physical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from zoneinfo import ZoneInfo

    from sparkcache_delta.table import DataFile

_ZONE = re.compile(r"Z|[+-]\d\d:?\d\d")
_DAY_LENGTH = len("2026-01-31")
_AMBIGUOUS = "?"  # suffix of a time that the log has both with a zone and without


def times(schema: pa.Schema, partitions: Iterable[str]) -> list[pa.Field]:
    """Return the partition columns whose values are instants."""
    fields = (schema.field(name) for name in partitions)
    return [field for field in fields if _is_instant(field.type)]


def without_zone(
    fields: Iterable[pa.Field], logged: Iterable[Mapping[str, str | None]]
) -> dict[str, dict[str, str]]:
    """Return the values without a zone, of each column that has such values.

    Args:
        fields: The columns.
        logged: All partition values as they are in the log.

    Returns:
        By column, the text to use for a value, by the text that Arrow writes for it.

    """
    rows = list(logged)
    by_column = {field.name: _without_zone(field, rows) for field in fields}
    return {name: texts for name, texts in by_column.items() if texts}


def as_logged(actions: pa.Table, zoneless: Mapping[str, Mapping[str, str]]) -> pa.Table:
    """Return the added files with columns of `zoneless` values as texts."""
    if not zoneless:
        return actions
    values = actions.column("partition").combine_chunks()
    names = [field.name for field in values.type]
    children = [
        _as_texts(values.field(name), zoneless[name])
        if name in zoneless
        else values.field(name)
        for name in names
    ]
    partition = pa.StructArray.from_arrays(children, names)
    index = actions.schema.get_field_index("partition")
    return actions.set_column(index, "partition", partition)


def in_zone(
    file: DataFile, instants: Iterable[str], options: Mapping[str, str]
) -> DataFile:
    """Return a file whose values all have a zone; raises ConfigError.

    `instants` are the columns that `instants_of` returns.
    """
    completed = {
        name: _in_zone(text, require_zone(options, name))
        for name in instants
        if (text := file.values.get(name)) is not None and not _has_zone(text)
    }
    if not completed:
        return file
    return replace(file, values={**file.values, **completed})


def instants_of(schema: pa.Schema) -> list[str]:
    """Return the names of columns with instants."""
    return [field.name for field in schema if _is_instant(field.type)]


def require_zone(options: Mapping[str, str], column: str) -> ZoneInfo:
    """Return the zone of times without a zone; raises ConfigError."""
    zone = scan_options.zone(options)
    if zone is None:
        raise ConfigError(
            f"partition column {column} has times without a time zone, which Spark's "
            f"Delta reads in the zone of the session: set {scan_options.ZONE} to that "
            f"zone, such as {scan_options.ZONE}=UTC or "
            f"{scan_options.ZONE}=Europe/Zurich, or leave the column out of "
            f"{scan_options.COLUMNS}"
        )
    return zone


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _has_zone(text: str) -> bool:
    return _ZONE.search(text, _DAY_LENGTH) is not None


def _without_zone(
    field: pa.Field, rows: Iterable[Mapping[str, str | None]]
) -> dict[str, str]:
    texts = {row.get(physical_name(field), row.get(field.name)) for row in rows}
    zoned = {text for text in texts if text and _has_zone(text)}
    both = {text.removesuffix("Z") for text in _formatted(zoned, "UTC")}
    return {
        text: text + _AMBIGUOUS if text in both else text
        for text in _formatted((text for text in texts - zoned if text), None)
    }


def _as_texts(times: pa.Array, zoneless: Mapping[str, str]) -> pa.Array:
    formatted = times.cast(pa.string()).to_pylist()
    texts = [text and zoneless.get(text.removesuffix("Z"), text) for text in formatted]
    return pa.array(texts, pa.string())


def _formatted(texts: Iterable[str], zone: str | None) -> list[str]:
    """Return times as Arrow writes them."""
    times = pa.array(list(texts), pa.string()).cast(pa.timestamp("us", zone))
    formatted: list[str] = times.cast(pa.string()).to_pylist()
    return formatted


def _in_zone(text: str, zone: ZoneInfo) -> str:
    time = datetime.fromisoformat(text.removesuffix(_AMBIGUOUS)).replace(tzinfo=zone)
    if text.endswith(_AMBIGUOUS) and time.utcoffset():
        raise ConfigError(
            f"option {scan_options.ZONE}={zone}: files of the partition "
            f"{text[: -len(_AMBIGUOUS)]} have this time both with a zone and without, "
            "and cannot be distinguished: rewrite these files, or leave the column out "
            f"of {scan_options.COLUMNS}"
        )
    try:
        time = time.astimezone(UTC)
    except OverflowError:
        raise ConfigError(
            f"option {scan_options.ZONE}={zone}: the partition value {text} is out of "
            "range in this zone"
        ) from None
    return f"{time.replace(tzinfo=None).isoformat(' ', 'microseconds')}Z"
