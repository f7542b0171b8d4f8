"""The queue that a ledger belongs to, and the ledger's start in the flat file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.model import topic_and_root
from sparkcache_rocketmq.names import Key, Name, Queue

if TYPE_CHECKING:
    from sparkcache.model import Ledger


def queue(ledger: Ledger) -> Queue:
    """Return the queue that a ledger belongs to."""
    full_name, _ = topic_and_root(ledger.topic)
    name = Name.parse(full_name)
    return Queue(name.cluster or "", name.broker or "", name.topic, ledger.id)


def base(ledger: Ledger) -> int:
    """Return a ledger's start in the flat file, as its object's name states."""
    _, root = topic_and_root(ledger.topic)
    uri = ledger.object.uri
    key = Key.parse(uri.removeprefix(f"{root}/"))
    if key is None:
        raise SourceError(uri, expected="the name of a segment or chunk", found=uri)
    return key.start
