"""The rules of a change log, which a stream of a table follows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache.testing.contract.comparing import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.connector import Storage, TableConnector


def check_changes(
    connector: TableConnector, storage: Storage, topic: str, options: Mapping[str, str]
) -> None:
    """Check the changes of a table from its beginning on, if it has a change log."""
    try:
        log = connector.change_log(storage, topic, options)
    except ConfigError:  # it cannot be read as a stream
        return
    begin, latest = log.beginning(), log.latest()
    for mark in (begin, latest):
        require(
            json.loads(json.dumps(mark)) == mark
            and not {"reached", "since"} & set(mark),
            "marks are JSON objects without the keys `reached` and `since`",
        )
    changes = log.changes(begin, latest)
    until, least = changes.until, changes.least_id()
    found = []
    for change in changes:
        found.append(change)
        if change.ledger is not None:
            ledger = change.ledger.ledger
            require(
                least is not None and least <= ledger.id,
                "least_id() is a lower bound of the ids of ledgers to come",
            )
            require(
                ledger.connector == connector.name,
                "ledgers name their connector",
            )
        least = changes.least_id()
    require(least is None, "least_id() is None once no change remains")
    require(
        until == (found[-1].after if found else begin),
        "`until` is the mark after the last change",
    )
    for count, change in enumerate(found, start=1):
        require(
            list(log.changes(begin, change.after)) == found[:count]
            and list(log.changes(change.after, until)) == found[count:],
            "the changes between two marks are always the same",
        )
    require(not list(log.changes(latest)), "nothing follows the latest mark")
