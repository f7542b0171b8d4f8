"""Which files of a folder Spark reads, and the partition values in folder names.

Without partition folders such as `day=2026-01-31` Spark reads the files in the folder
itself, otherwise the files below partition folders. Names that begin with `_` or `.`
are hidden, except `_name=value`.

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
    """Return whether Spark ignores a file because of its name or a folder's name."""
    return any(map(_is_hidden_name, path.split("/")))


def values_of_files(uri: str, paths: Iterable[str]) -> dict[str, Values]:
    """Return the files that are read, with the values of the partition columns.

    `paths` are those of all files below the folder at `uri`. Raises ConfigError.
    """
    split = {path: _split(path.split("/")[:-1]) for path in paths}
    named = {
        path: _values(uri, folders) for path, (_, folders) in split.items() if folders
    }
    if not named:
        return {path: {} for path in split if "/" not in path}
    bases = {"/".join(base).lower(): path for path, (base, _) in split.items()}
    if len(bases) > 1:
        raise _inconsistent(uri, "begin in one folder", bases.values())
    columns = {tuple(map(str.lower, values)): path for path, values in named.items()}
    if len(columns) > 1:
        raise _inconsistent(uri, "name the same columns", columns.values())
    names = next(iter(named.values())).keys()
    return {
        path: dict(zip(names, values.values(), strict=True))
        for path, values in named.items()
    }


def _is_hidden_name(name: str) -> bool:
    if name[:1] == "_" and "=" not in name:
        return True
    return name[:1] == "." or name.endswith(_COPYING)


def _split(folders: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the folders before the partition folders, and the partition folders.

    Folders after the last partition folder do not matter. Without any partition folder,
    all folders are before.
    """
    stop = len(folders)
    while stop and "=" not in folders[stop - 1]:
        stop -= 1
    first = stop
    while first and "=" in folders[first - 1]:
        first -= 1
    return (folders[:first], folders[first:stop]) if stop else (folders, ())


def _values(uri: str, folders: Sequence[str]) -> Values:
    values: Values = {}
    for folder in folders:
        name, _, text = folder.partition("=")
        is_taken = unquote(name).lower() in map(str.lower, values)
        if not name or not text or is_taken:
            raise ConfigError(
                f"{uri}: folder {folder} of {'/'.join(folders)} is not a partition: "
                "its name must be column=value, with a column of its own"
            )
        values[unquote(name)] = None if text == _NO_VALUE else unquote(text)
    return values


def _inconsistent(uri: str, rule: str, paths: Iterable[str]) -> ConfigError:
    one, other = sorted(paths)[:2]
    return ConfigError(
        f"{uri}: partition folders such as day=2026-01-31 must all {rule}, but those "
        f"of {one} and {other} do not; select one folder with the option topic"
    )
