"""Offsets of a stream of a table: a mark in the table's log, and a position.

As JSON, in checkpoints and in the progress of a query:

    {"t": {"table": "f1e6...", "version": 7, "files": 2, "reached": "3742...:1000"}}

All fields but `reached` are the log's mark, which alone determines what comes next.
`reached` is a position: of the entries stored when the batch was planned, all before it
have been read. Nodes use it, since they do not know logs. The initial offset lacks it.

The end of a first batch also has the batch's start, as a mark named `since`.
Checkpoints do not keep the start. To repeat the batch, Spark would ask for the initial
offset again, which by then would be after later commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkcache.errors import ConfigError
from sparkcache.model import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.connector import Change, LedgerMap, Mark

Offset: TypeAlias = dict[str, Mapping[str, Any]]

_REACHED = "reached"
_SINCE = "since"


def as_json(
    topic: str, mark: Mark, reached: Position | None = None, since: Mark | None = None
) -> Offset:
    """Return an offset in the form that Spark stores as JSON."""
    extra = {_REACHED: None if reached is None else str(reached), _SINCE: since}
    return {topic: {**mark, **{name: value for name, value in extra.items() if value}}}


def mark(offset: Offset, topic: str) -> Mark:
    """Return the mark in the log, unchecked: the log rejects a wrong one."""
    fields = offset[topic]
    if not isinstance(fields, dict):
        return fields
    others = _REACHED, _SINCE
    return {name: value for name, value in fields.items() if name not in others}


def since(offset: Offset, topic: str) -> Mark | None:
    """Return the start of the first batch if the offset is its end; else None."""
    fields = offset[topic]
    return fields.get(_SINCE) if isinstance(fields, dict) else None


def reached(offset: object) -> dict[str, Position]:
    """Return up to which position topics were read; empty if the offset has none.

    Raises ConfigError.
    """
    marks = offset if isinstance(offset, dict) else {}
    texts = {
        topic: fields[_REACHED]
        for topic, fields in marks.items()
        if isinstance(fields, dict) and _REACHED in fields
    }
    try:
        return {topic: Position.parse(str(text)) for topic, text in texts.items()}
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint has the offset {offset!r}, which is not from this source: "
            f"{error}; give another checkpointLocation"
        ) from error


def highest(known: Position | None, changes: Sequence[Change]) -> Position | None:
    """Return the position after all entries of the changes, or `known` if later."""
    ends = [bounds(changed)[1]] if (changed := ledgers(changes)) else []
    return max([*ends, *([] if known is None else [known])], default=None)


def ledgers(changes: Sequence[Change]) -> tuple[LedgerMap, ...]:
    """Return the changed ledgers that have entries, in the order of their ids."""
    changed = [change.ledger for change in changes if change.ledger is not None]
    return tuple(
        sorted(
            (ledger_map for ledger_map in changed if ledger_map.extents),
            key=lambda ledger_map: ledger_map.ledger.id,
        )
    )


def bounds(ledgers: Sequence[LedgerMap]) -> tuple[Position, Position]:
    """Return the first position of ledgers, and the position after their last entry."""
    last = ledgers[-1].ledger.id
    stop = max(
        extent.last + 1
        for ledger_map in ledgers
        if ledger_map.ledger.id == last
        for extent in ledger_map.extents
    )
    return Position(ledgers[0].ledger.id, 0), Position(last, stop)
