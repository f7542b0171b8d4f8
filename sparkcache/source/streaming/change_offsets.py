"""How far a stream of a table has come: a mark in its log, and where its ledgers are.

As JSON, in checkpoints and in the progress of a query:

    {"t": {"table": "f1e6...", "version": 7, "files": 2, "reached": "3742...:1000"}}

All but `reached` is the log's mark, which alone says what comes next. `reached` is a
position: of what was there when the batch was planned, all that lies before it was
read. Nodes go by that, since they know no logs. It is left out where a stream begins.

The end of a first batch has its beginning as well, a mark named `since`. Checkpoints
do not keep that, and for a batch that is read again Spark would ask where a stream
begins now: behind what was committed meanwhile.
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


def written(
    topic: str, mark: Mark, reached: Position | None = None, since: Mark | None = None
) -> Offset:
    """Return an offset as JSON has it."""
    told = {_REACHED: None if reached is None else str(reached), _SINCE: since}
    return {topic: {**mark, **{name: it for name, it in told.items() if it}}}


def mark(offset: Offset, topic: str) -> Mark:
    """Return the mark in the log; whatever else stands there, for the log to judge."""
    found = offset[topic]
    if not isinstance(found, dict):
        return found
    others = _REACHED, _SINCE
    return {name: value for name, value in found.items() if name not in others}


def since(offset: Offset, topic: str) -> Mark | None:
    """Return where a stream began of which this ends the first batch; else None."""
    found = offset[topic]
    return found.get(_SINCE) if isinstance(found, dict) else None


def reached(offset: object) -> dict[str, Position]:
    """Return up to where topics were read; none if it is no offset that says so.

    Raises ConfigError.
    """
    marks = offset if isinstance(offset, dict) else {}
    told = {
        topic: of_topic[_REACHED]
        for topic, of_topic in marks.items()
        if isinstance(of_topic, dict) and _REACHED in of_topic
    }
    try:
        return {topic: Position.parse(str(at)) for topic, at in told.items()}
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint has the offset {offset!r}, which is none of this source: "
            f"{error}; give another checkpointLocation"
        ) from error


def highest(known: Position | None, changes: Sequence[Change]) -> Position | None:
    """Return the position behind all that there is: what was known, and what is new."""
    behind = [ends(found)[1]] if (found := ledgers(changes)) else []
    return max([*behind, *([] if known is None else [known])], default=None)


def ledgers(changes: Sequence[Change]) -> tuple[LedgerMap, ...]:
    """Return the ledgers with anything to read in the order of their ids."""
    found = [change.ledger for change in changes if change.ledger is not None]
    return tuple(
        sorted((of for of in found if of.extents), key=lambda of: of.ledger.id)
    )


def ends(ledgers: Sequence[LedgerMap]) -> tuple[Position, Position]:
    """Return from where to where ledgers lie among others."""
    last = ledgers[-1].ledger.id
    stop = max(
        extent.last + 1
        for of in ledgers
        if of.ledger.id == last
        for extent in of.extents
    )
    return Position(ledgers[0].ledger.id, 0), Position(last, stop)
