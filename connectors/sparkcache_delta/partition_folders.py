"""Which files of a folder Spark reads, and what the names of folders say of them.

Without folders such as `day=2026-01-31` those that lie in the folder itself, else those
below such. What is named `_` or `.` something is hidden, but for `_name=value`.

Source: Spark's PartitioningUtils and PartitioningAwareFileIndex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Values: TypeAlias = dict[str, str | None]

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_COPYING = "._COPYING_"


def is_hidden(path: str) -> bool:
    """Tell whether Spark does not see a file, for its name or a folder's."""
    return any(map(_hides, path.split("/")))


def values_of_files(place: str, paths: Iterable[str]) -> dict[str, Values]:
    """Return the files that are read, with the values of the partition columns.

    Of the paths of all files below a place. Raises ConfigError.
    """
    split = {path: _split(path.split("/")[:-1]) for path in paths}
    named = {path: _values(place, found) for path, (_, found) in split.items() if found}
    if not named:
        return {path: {} for path in split if "/" not in path}
    bases = {"/".join(base).lower(): path for path, (base, _) in split.items()}
    if len(bases) > 1:
        raise _unclear(place, "begin in one folder", bases.values())
    columns = {tuple(map(str.lower, found)): path for path, found in named.items()}
    if len(columns) > 1:
        raise _unclear(place, "name the same columns", columns.values())
    names = next(iter(named.values())).keys()
    return {
        path: dict(zip(names, found.values(), strict=True))
        for path, found in named.items()
    }


def _hides(name: str) -> bool:
    if name[:1] == "_" and "=" not in name:
        return True
    return name[:1] == "." or name.endswith(_COPYING)


def _split(folders: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the folders before those that name values, and these.

    What comes behind the last of these does not matter; without any, all are before.
    """
    stop = len(folders)
    while stop and "=" not in folders[stop - 1]:
        stop -= 1
    first = stop
    while first and "=" in folders[first - 1]:
        first -= 1
    return (folders[:first], folders[first:stop]) if stop else (folders, ())


def _values(place: str, folders: Sequence[str]) -> Values:
    found: Values = {}
    for folder in folders:
        name, _, text = folder.partition("=")
        is_taken = unquote(name).lower() in map(str.lower, found)
        if not name or not text or is_taken:
            raise ConfigError(
                f"{place}: folder {folder} of {'/'.join(folders)} is no partition: it "
                "has to be named as a column that no other names, =, and a value"
            )
        found[unquote(name)] = None if text == _NO_VALUE else unquote(text)
    return found


def _unclear(place: str, do: str, paths: Iterable[str]) -> ConfigError:
    one, other = sorted(paths)[:2]
    return ConfigError(
        f"{place}: folders such as day=2026-01-31 have to {do}, which those of {one} "
        f"and {other} do not; name the folder that is meant with the option topic"
    )
