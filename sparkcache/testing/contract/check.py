"""The check of a connector on a stored topic."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from sparkcache.connector import TableConnector
from sparkcache.testing.contract.changes import check_changes
from sparkcache.testing.contract.comparing import is_same, require
from sparkcache.testing.contract.planning import (
    check_constants,
    check_names,
    check_pin,
    check_select,
    check_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkcache.connector import Connector, Storage
    from sparkcache.model import Loss

RUN_BYTES = (1, 1000, 1 << 20)
"""Sizes of runs: about an entry each, some entries each, most extents in one."""


def check_connector(
    connector: Connector,
    storage: Storage,
    topic: str,
    options: Mapping[str, str] | None = None,
    *,
    run_bytes: Sequence[int] = RUN_BYTES,
) -> tuple[list[dict[str, Any]], list[Loss]]:
    """Check a connector on a stored topic; return the rows and losses of its scan.

    The rows are those of a scan with these options, in order, as dictionaries. Only the
    caller knows what was stored, so compare them.

    `topic` is a name as users write it, and `run_bytes` are the sizes of runs to try.
    The topic is read many times, so it should be small. Raises AssertionError.
    """
    state = pickle.dumps(_state(connector))
    check_constants(connector)
    name = check_names(connector, topic)
    scan = check_pin(connector, storage, name, dict(options or {}))
    rows: list[dict[str, Any]] = []
    losses: list[Loss] = []
    for selected in check_select(scan, name):
        snapshot = check_snapshot(scan, selected)
        found = [scan.read(snapshot, size) for size in run_bytes]
        require(
            all(is_same(others, found[0][0]) for others, _ in found[1:]),
            "the rows are the same, whatever the size of runs",
        )
        rows += found[0][0]
        losses += [*snapshot.losses, *found[0][1]]
        if isinstance(connector, TableConnector):
            check_changes(connector, storage, selected, scan.options)
    require(
        pickle.dumps(_state(connector)) == state,
        "an instance holds constants only: no call changes its attributes",
    )
    return rows, losses


def _state(connector: Connector) -> dict[str, Any]:
    return getattr(connector, "__dict__", {})
