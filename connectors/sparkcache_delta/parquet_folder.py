"""A folder of Parquet files as a table, as Spark reads it.

Its columns are those of its first file, then those that folders name, such as
`day=2026-01-31`. Files and folders whose names begin with `_` or `.` are none of it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as asked
from sparkcache_delta.footers import read_footer
from sparkcache_delta.table import DataFile, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sparkcache.connector import Storage

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_LIKE_TIME = re.compile(r"\d{4}-\d{1,2}-\d{1,2}[ T]\d.*")


class ParquetFolder:
    """The Parquet files below a folder."""

    def __init__(
        self, storage: Storage, place: str, options: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._place = place
        for name in (asked.VERSION, asked.TIMESTAMP):
            if name in options:
                raise ConfigError(
                    f"option {name}={options[name]!r}: {place} is no Delta table but a "
                    "folder, which has no versions"
                )

    def __repr__(self) -> str:
        return f"ParquetFolder({self._place})"

    def table(self) -> Table:
        """Return the columns. Raises ConfigError, SourceError."""
        first = self._paths[0]
        footer = read_footer(self._storage, self._uri(first), None)
        fields = [
            pa.field(field.name, _of_spark(field.type, field.name))
            for field in footer.metadata.schema.to_arrow_schema()
        ]
        kinds = self._kinds()
        kept = [field for field in fields if field.name not in kinds]
        named = [pa.field(name, kind) for name, kind in kinds.items()]
        return Table(None, pa.schema(kept + named), by_id=False, partitions=[*kinds])

    def files(self) -> list[DataFile]:
        """Return the files in the order of their names."""
        return [
            DataFile(self._uri(path), number, values=_values(path))
            for number, path in enumerate(self._paths)
        ]

    @cached_property
    def _paths(self) -> list[str]:
        before = f"{self._place}/"
        names = (found.uri for found in self._storage.list())
        inside = (name.removeprefix(before) for name in names if name > before)
        paths = [
            path
            for path in inside
            if "://" not in path
            and not any(part[:1] in ("_", ".") for part in path.split("/"))
        ]
        if not paths:
            raise ConfigError(
                f"{self._place}: there is neither a Delta table nor a Parquet file"
            )
        return paths

    def _uri(self, path: str) -> str:
        return f"{self._place}/{path}"

    def _kinds(self) -> dict[str, pa.DataType]:
        """Return the type of each partition column, that which fits all values."""
        texts: dict[str, set[str]] = {}
        for path in self._paths:
            for name, text in _values(path).items():
                texts.setdefault(name, set()).update([] if text is None else [text])
        return {name: _kind(name, found) for name, found in texts.items()}


def _values(path: str) -> dict[str, str | None]:
    """Return what the folders of a file say."""
    return dict(_named(part) for part in path.split("/")[:-1] if "=" in part)


def _named(folder: str) -> tuple[str, str | None]:
    name, _, text = folder.partition("=")
    return unquote(name), None if text == _NO_VALUE else unquote(text)


def _kind(name: str, texts: Iterable[str]) -> pa.DataType:
    """Return the type that Spark finds for values of a partition; raises ConfigError.

    For times it goes by the session's zone, and for what is more than a long's it has
    decimals of as many digits.
    """
    found = list(texts)
    if not found:
        return pa.string()
    if any(map(_LIKE_TIME.fullmatch, found)):
        raise _unclear(name, found, "times")
    if all(map(_NUMBER.fullmatch, found)):
        if any(map(_is_decimal, found)):
            raise _unclear(name, found, "decimals")
        if not all(map(_WHOLE.fullmatch, found)):
            return pa.float64()
        return pa.int32() if all(_fits(text, 32) for text in found) else pa.int64()
    return pa.date32() if all(map(_DAY.fullmatch, found)) else pa.string()


def _is_decimal(text: str) -> bool:
    """Tell whether a number is a decimal to Java: no long, and without a fraction."""
    if _WHOLE.fullmatch(text):
        return not _fits(text, 64)
    exponent = Decimal(text).as_tuple().exponent
    return isinstance(exponent, int) and exponent >= 0


def _fits(text: str, bits: int) -> bool:
    return -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1)


def _unclear(name: str, texts: list[str], kind: str) -> ConfigError:
    return ConfigError(
        f"partition {name}={texts[0]}: Spark would read such as {kind}, which is not "
        "supported of a folder; have Delta keep the table, where columns have types"
    )


def _of_spark(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type that Spark has for one of Parquet's; raises ConfigError."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                pa.field(field.name, _of_spark(field.type, name))
                for field in _fields(kind)
            ]
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_of_spark(kind.value_type, name))
    if pa.types.is_map(kind):
        return pa.map_(_of_spark(kind.key_type, name), _of_spark(kind.item_type, name))
    if pa.types.is_dictionary(kind):
        return _of_spark(kind.value_type, name)
    if pa.types.is_timestamp(kind):
        is_instant = kind.tz is not None or kind.unit == "ns"  # INT96 comes as ns
        return pa.timestamp("us", "UTC" if is_instant else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        raise ConfigError(f"column {name} is of type {kind}, which Spark has not")
    return _WIDER.get(kind, kind)


def _fields(kind: pa.DataType) -> Iterator[pa.Field]:
    for at in range(kind.num_fields):
        yield kind.field(at)
