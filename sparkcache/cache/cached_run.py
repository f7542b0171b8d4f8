"""A run in memory, as the cache knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sparkcache.cache.deadline_queue import DeadlineQueue
    from sparkcache.model import RunKey, Slot

V = TypeVar("V")


class Residency(Enum):
    """Under what a run's bytes are counted."""

    KEPT = auto()
    LENT = auto()
    GONE = auto()


@dataclass(slots=True, eq=False, repr=False)
class CachedRun(Generic[V]):
    """One run and its state. Equal to itself only; the cache alone changes it.

    Attributes:
        key: Which run.
        value: What the caller keeps for it, never looked into.
        slot: Its memory.
        expected_reads: Planned reads still to come.
        pins: How many readers map it.
        place: KEPT: look-ups find it. LENT: they do not, and its bytes count until
            its last reader lets go. GONE: it counts no more.
        requeues: How often it was spared since it was inserted or came to be expected.
        accessed: Looked up since it was inserted or last spared.
        unread: Loaded before anybody asked for it, and not looked up yet.
        ahead: The same, and the reader that it was loaded for is still coming.
        prefetched: Loaded before anybody asked for it, looked up or not.
        lookups: How often it was looked up since it was inserted.
        looked_up_s: When that was the last time.
        was_read: Read since it was inserted, where reads change the time to live.
        since_s: When its time began.
        inserted_s: When its life began.
        deadlines: The queue in which its time runs; None unless KEPT.

    """

    key: RunKey
    value: V
    slot: Slot
    expected_reads: int = 0
    pins: int = 0
    place: Residency = Residency.GONE
    requeues: int = 0
    accessed: bool = False
    unread: bool = False
    ahead: bool = False
    was_read: bool = False
    since_s: float = 0.0
    inserted_s: float = 0.0
    deadlines: DeadlineQueue[V] | None = None
    prefetched: bool = False
    lookups: int = 0
    looked_up_s: float = 0.0

    @property
    def is_first_of_prefetched(self) -> bool:
        """Whether it was looked up just once, by the one it was loaded ahead of."""
        return self.prefetched and self.lookups == 1

    @property
    def size_bytes(self) -> int:
        """What it counts for."""
        return self.slot.size_bytes

    def __repr__(self) -> str:
        return (
            f"<{self.key}: {self.size_bytes} bytes {self.place.name.lower()}, "
            f"{self.expected_reads} reads expected, {self.pins} pins>"
        )


def require_reads(expected_reads: int) -> None:
    """Raise ValueError for what is no number of reads to come."""
    if expected_reads < 0:
        raise ValueError(f"expected_reads is {expected_reads}: use 0 or more")
