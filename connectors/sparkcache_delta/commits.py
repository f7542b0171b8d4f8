"""What one commit to a table has changed: its file in the log, JSON line by line.

delta-rs tells what a version has. It does not tell what was new in it, nor which files
have rows that others had before: those of a commit that has only moved rows are marked
so in the log, with `dataChange`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Schema

from sparkcache.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId

_VECTOR = "deletionVector"

TRIMMED = (
    "if the table's log was trimmed, as its property delta.logRetentionDuration says, "
    "begin anew, with another checkpoint, with all rows or a version that is kept"
)


@dataclass(frozen=True)
class Commit:
    """A commit.

    Attributes:
        version: Which version it has made.
        added: Names of the files with rows that are new, as the log has them.
        with_deleted: Those of them with rows that are deleted, as vectors say.
        removed: Those of the files that are none of the table's any more.
        takes_rows: Whether rows that there were are gone, or others.
        schema: The columns from now on; None if it does not change them.

    """

    version: int
    added: Sequence[str]
    with_deleted: frozenset[str]
    removed: frozenset[str]
    takes_rows: bool
    schema: pa.Schema | None


def identity(storage: Storage, place: str, version: int) -> ObjectId | None:
    """Return what tells a commit from another of its version; None if it is gone."""
    try:
        return storage.get_end(_uri(place, version), 1).id
    except SourceError:
        return None


def read_commit(storage: Storage, place: str, version: int) -> Commit:
    """Read the commit that has made a version. Raises SourceError."""
    uri = _uri(place, version)
    try:
        return _parsed(storage.get(uri).data.splitlines(), version)
    except SourceError as error:
        raise SourceError(
            uri,
            expected="the commit with which a stream goes on",
            found=f"{error.found}; {TRIMMED}",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            uri, expected="a commit of a Delta table", found=str(error)
        ) from error


def _uri(place: str, version: int) -> str:
    return f"{place}/_delta_log/{version:020}.json"


def _parsed(lines: Iterable[bytes], version: int) -> Commit:
    actions = [json.loads(line) for line in lines if line.strip()]
    removed, changing = _of(actions, "remove"), _of(actions, "metaData")
    added = [add for add in _of(actions, "add") if add["dataChange"]]
    return Commit(
        version,
        sorted(add["path"] for add in added),
        frozenset(add["path"] for add in added if add.get(_VECTOR) is not None),
        frozenset(remove["path"] for remove in removed),
        any(remove["dataChange"] for remove in removed),
        _schema(changing[-1]["schemaString"]) if changing else None,
    )


def _of(actions: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in actions if action.get(kind) is not None]


def _schema(text: str) -> pa.Schema:
    return pa.schema(Schema.from_json(text).to_arrow())
