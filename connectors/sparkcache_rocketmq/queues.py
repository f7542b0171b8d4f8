"""Which queue a ledger is a piece of, and which piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache_rocketmq.names import Key, Name, Queue

if TYPE_CHECKING:
    from sparkcache.model import Ledger


def queue(ledger: Ledger) -> Queue:
    """Return the queue that a ledger is a piece of."""
    _, _, full_name = ledger.topic.rpartition("#")
    name = Name.parse(full_name)
    return Queue(name.cluster or "", name.broker or "", name.topic, ledger.id)


def base(ledger: Ledger) -> int:
    """Return where in the flat file a ledger begins, which its object's name says."""
    root, _, _ = ledger.topic.rpartition("#")
    uri = ledger.object.uri
    key = Key.parse(uri.removeprefix(f"{root}/"))
    if key is None:
        raise SourceError(uri, expected="the name of a segment or chunk", found=uri)
    return key.place
