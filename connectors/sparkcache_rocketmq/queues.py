"""Which queue a ledger is a piece of, and which piece."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from sparkcache.model import Ledger

_POSIX = re.compile(r".*/[0-9a-f]{8}(\d{20})")
_CHUNK = re.compile(r".*/seg-(\d+)/(?:chunk/chunk|segment/segment)-(\d+)")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of a topic on a broker."""

    broker: str
    topic: str
    id: int

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """Return the queue that a ledger is a piece of."""
        _, _, full_name = ledger.topic.rpartition("#")
        broker, topic, queue_id = full_name.split("/")[-3:]
        return cls(broker, topic, int(queue_id))


def base(uri: str) -> int:
    """Return where in the flat file an object begins, which its name says."""
    if (match := _POSIX.fullmatch(uri)) is not None:
        return int(match[1])
    if (match := _CHUNK.fullmatch(uri)) is not None:
        return int(match[1]) + int(match[2])
    raise ValueError(f"{uri} is not the name of a segment or chunk")
