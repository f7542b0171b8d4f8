"""A topic's list of ledgers, as its broker told it.

It is the JSON that `pulsar-admin topics info-internal` or `stats-internal` prints. It
says which ledgers belong to the topic, which segments in the streaming format do not
say themselves; how many entries each has; and, in `info-internal` of newer brokers,
which upload of a ledger counts. It also says where each subscription stands.

Source: ManagedLedgerInfo and ManagedLedgerInternalStats of Apache Pulsar.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcache.errors import ConfigError
from sparkcache.model import Position
from sparkcache_pulsar.names import LAST_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.connector import Storage

OPTION = "manifest"

_FORMS = (
    "the JSON that 'pulsar-admin topics info-internal' prints, or the name of an "
    "object below the path that holds it"
)


@dataclass(frozen=True, slots=True)
class Listed:
    """What a manifest says of a ledger.

    Attributes:
        entries: How many it has; 0 if that is not known, as it is open.
        is_offloaded: Whether it should be in the bucket.
        uuid: Of the upload that counts; None if it is not named, or not finished.

    """

    entries: int
    is_offloaded: bool
    uuid: str | None = None


def read_manifest(
    storage: Storage, options: Mapping[str, str]
) -> Mapping[int, Listed] | None:
    """Return the ledgers that the option lists, by id; None if it is not given."""
    text = options.get(OPTION)
    if text is None:
        return None
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    if not text.lstrip().startswith("{"):
        text = storage.get(f"{storage.root}/{text}").data.decode(errors="replace")
    try:
        ledgers = json.loads(text)["ledgers"]
        return {_id(ledger["ledgerId"]): _listed(ledger) for ledger in ledgers}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"option {OPTION}={shown!r}: {type(error).__name__}: {error}; give {_FORMS}"
        ) from error


def read_cursors(text: str) -> dict[str, Position]:
    """Return where each subscription of a manifest stands.

    That is the first entry that it has not acknowledged with all before it: what
    `startingOffsets` takes to read what it has left. Raises ConfigError.

    Args:
        text: The JSON that `pulsar-admin topics info-internal` or `stats-internal`
            prints.

    """
    try:
        cursors = json.loads(text)["cursors"] or {}
        return {name: _behind(cursor) for name, cursor in cursors.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"cursors of a manifest: {type(error).__name__}: {error}; give {_FORMS}"
        ) from error


def _behind(cursor: Mapping[str, Any]) -> Position:
    """Return what is behind the entry up to which a cursor has all acknowledged."""
    if "markDelete" in cursor:  # in info-internal
        ledger, entry = (cursor["markDelete"][key] for key in ("ledgerId", "entryId"))
    else:
        ledger, entry = map(int, cursor["markDeletePosition"].split(":"))
    return Position(_id(ledger), _id(entry + 1))


def _listed(ledger: Mapping[str, Any]) -> Listed:
    # `isOffloaded` in info-internal, `offloaded` in stats-internal.
    is_offloaded = bool(ledger.get("isOffloaded", ledger.get("offloaded", False)))
    uuid = ledger.get("offloadedContextUuid") if is_offloaded else None
    entries = _id(0 if ledger.get("entries") is None else ledger["entries"])
    return Listed(entries, is_offloaded, None if uuid is None else str(uuid))


def _id(number: object) -> int:
    # bool is a kind of int; and what is no int64 fits nowhere.
    if type(number) is not int or not 0 <= number <= LAST_ID:
        raise ValueError(f"{number!r} is neither the id of a ledger nor a count")
    return number
