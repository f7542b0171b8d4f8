"""Changes that one commit makes to a table: its file in the log, JSON line by line.

delta-rs reports the content of a version. It reports neither what was new in it, nor
which of its files hold rows that other files held before: a commit that only moves rows
marks them with `dataChange` in the log.
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
_INFO = "commitInfo"
_TIME = "inCommitTimestamp"

TRIMMED = (
    "if the table's log was trimmed, as its property delta.logRetentionDuration "
    "allows, start the query again with a new checkpoint, from all rows or from a "
    "version that is kept"
)


@dataclass(frozen=True)
class Commit:
    """A commit.

    Attributes:
        version: The version that it made.
        added: Names of the files with new rows, as in the log.
        with_deleted: Those of them that have a deletion vector.
        removed: Names of the files that it removed from the table.
        takes_rows: Whether it deletes or changes earlier rows.
        schema: The columns from this version on; None if it does not change them.

    """

    version: int
    added: Sequence[str]
    with_deleted: frozenset[str]
    removed: frozenset[str]
    takes_rows: bool
    schema: pa.Schema | None


def identity(storage: Storage, table_uri: str, version: int) -> ObjectId | None:
    """Return the identity of the commit that made a version; None if it is gone."""
    try:
        return storage.get_end(_commit_uri(table_uri, version), 1).id
    except SourceError:
        return None


def read_commit(storage: Storage, table_uri: str, version: int) -> Commit:
    """Read the commit that made a version. Raises SourceError."""
    uri = _commit_uri(table_uri, version)
    try:
        return _parse(storage.get(uri).data.splitlines(), version)
    except SourceError as error:
        raise SourceError(
            uri,
            expected="the next commit that the stream reads",
            found=f"{error.found}; {TRIMMED}",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            uri, expected="a commit of a Delta table", found=str(error)
        ) from error


def recorded_ms(storage: Storage, table_uri: str, version: int) -> int:
    """Return the time that a commit records, in milliseconds since 1970.

    Only commits of tables with in-commit timestamps record one. Raises SourceError.
    """
    uri = _commit_uri(table_uri, version)
    try:
        for line in storage.get(uri).data.splitlines():
            action = json.loads(line) if line.strip() else {}
            if action.get(_INFO) is not None:
                return int(action[_INFO][_TIME])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise SourceError(
        uri,
        expected=f"the time of the commit, {_INFO}.{_TIME}, since the table has "
        "in-commit timestamps",
        found="none",
    )


def _commit_uri(table_uri: str, version: int) -> str:
    return f"{table_uri}/_delta_log/{version:020}.json"


def _parse(lines: Iterable[bytes], version: int) -> Commit:
    actions = [json.loads(line) for line in lines if line.strip()]
    removed = _of_kind(actions, "remove")
    changing = _of_kind(actions, "metaData")
    added = [add for add in _of_kind(actions, "add") if add["dataChange"]]
    return Commit(
        version,
        sorted(add["path"] for add in added),
        frozenset(add["path"] for add in added if add.get(_VECTOR) is not None),
        frozenset(remove["path"] for remove in removed),
        any(remove["dataChange"] for remove in removed),
        _schema(changing[-1]["schemaString"]) if changing else None,
    )


def _of_kind(actions: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in actions if action.get(kind) is not None]


def _schema(text: str) -> pa.Schema:
    return pa.schema(Schema.from_json(text).to_arrow())
