"""Counts of requests to a storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Traffic:
    """Counters of reads of objects, without listings. Thread-safe.

    Attributes:
        gets: Requests for the content of an object.
        received_bytes: Bytes of content that arrived.
        retries: Requests that were repeated.
        on_add: Called with all three counts whenever one has changed, if set.

    """

    gets: int = 0
    received_bytes: int = 0
    retries: int = 0
    on_add: Callable[[int, int, int], None] | None = field(
        default=None, repr=False, compare=False
    )
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, *, gets: int = 0, received_bytes: int = 0, retries: int = 0) -> None:
        """Add to the counters."""
        with self._lock:
            self.gets += gets
            self.received_bytes += received_bytes
            self.retries += retries
            if self.on_add is not None:
                self.on_add(self.gets, self.received_bytes, self.retries)

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(
            self.gets - earlier.gets,
            self.received_bytes - earlier.received_bytes,
            self.retries - earlier.retries,
        )

    def so_far(self) -> Traffic:
        """Return a copy of the current counts."""
        return self - Traffic()
