"""A manifest: a topic's list of ledgers, as its broker reports it.

It is the JSON that `pulsar-admin topics info-internal` or `stats-internal` prints. It
lists the ledgers of the topic, which segments in the streaming format do not name; the
number of entries of each; and, in `info-internal` of newer brokers, the valid upload of
each ledger. It also has the position of each subscription.

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
    "object below the path that contains it"
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A ledger in a manifest.

    Attributes:
        entries: Its number of entries; 0 if unknown because the ledger is open.
        is_offloaded: Whether it should be in the bucket.
        uuid: The uuid of its valid upload; None if not named, or not finished.

    """

    entries: int
    is_offloaded: bool
    uuid: str | None = None


def read_manifest(
    storage: Storage, options: Mapping[str, str]
) -> Mapping[int, Listed] | None:
    """Return the manifest's ledgers by id; None if the option is not set."""
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
    """Return the position of each subscription of a manifest.

    That is the first entry that is not acknowledged along with all entries before it.
    As `startingOffsets` it reads the entries that remain. Raises ConfigError.

    Args:
        text: The JSON that `pulsar-admin topics info-internal` or `stats-internal`
            prints.

    """
    try:
        cursors = json.loads(text)["cursors"] or {}
        return {name: _position(cursor) for name, cursor in cursors.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"cursors of a manifest: {type(error).__name__}: {error}; give {_FORMS}"
        ) from error


def _position(cursor: Mapping[str, Any]) -> Position:
    """Return the position after the last entry that is acknowledged without gaps."""
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
    # bool is a subclass of int; and Pulsar's numbers are int64.
    if type(number) is not int or not 0 <= number <= LAST_ID:
        raise ValueError(f"{number!r} is neither the id of a ledger nor a count")
    return number
