"""A run in memory, with its state in the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from sparkcache.cache.deadline_queue import DeadlineQueue
    from sparkcache.model import RunKey, Slot

V = TypeVar("V")


class Residency(Enum):
    """Whether a run is held (KEPT), held only by its readers (LENT), or GONE."""

    KEPT = auto()
    LENT = auto()
    GONE = auto()


@dataclass(slots=True, eq=False)
class Bundle:
    """Memory that several small runs share, and that is freed with the last of them.

    Attributes:
        kept: The runs in it that are KEPT.
        lent: How many runs in it are LENT.
        idle_bytes: Bytes of the runs in it that are GONE, which count all the same.
        idle_runs: How many these are.

    """

    kept: dict[CachedRun[Any], None] = field(default_factory=dict, repr=False)
    lent: int = 0
    idle_bytes: int = 0
    idle_runs: int = 0

    @property
    def is_used(self) -> bool:
        """Whether any run in it is kept or lent."""
        return bool(self.kept) or self.lent > 0


@dataclass(slots=True, eq=False, repr=False)
class CachedRun(Generic[V]):
    """One run and its state. Compared by identity; only the cache changes it.

    Attributes:
        key: The key of the run.
        value: An opaque value of the caller.
        slot: The memory of the run.
        bundle: The memory that its slot is a part of; None if it has its own.
        expected_reads: Planned reads still to come.
        pins: How many readers map the run.
        residency: KEPT: look-ups find the run. LENT: look-ups do not find it, and its
            bytes count until its last reader unpins it. GONE: its bytes no longer
            count, or count as idle bytes of its bundle.
        requeues: How often the run was spared since it was inserted or first expected.
        accessed: Whether it was looked up since it was inserted or last spared.
        unread: Whether it was prefetched and has not been looked up yet.
        ahead: Whether, in addition, the reader it was prefetched for is still expected.
        prefetched: Whether it was prefetched, looked up or not.
        lookups: How often it was looked up since it was inserted.
        looked_up_s: Time of the last look-up.
        was_read: Whether it was read since it was inserted, if reads change the time
            to live.
        since_s: Start of its current time to live.
        inserted_s: Start of its age: the time of insertion.
        deadlines: The queue that holds its deadline; None unless KEPT.

    """

    key: RunKey
    value: V
    slot: Slot
    expected_reads: int = 0
    pins: int = 0
    residency: Residency = Residency.GONE
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
    bundle: Bundle | None = None

    @property
    def is_first_of_prefetched(self) -> bool:
        """Whether the run was prefetched and has been looked up exactly once."""
        return self.prefetched and self.lookups == 1

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that the run is charged for."""
        return self.slot.size_bytes

    def __repr__(self) -> str:
        return (
            f"<{self.key}: {self.size_bytes} bytes {self.residency.name.lower()}, "
            f"{self.expected_reads} reads expected, {self.pins} pins>"
        )


def require_reads(expected_reads: int) -> None:
    """Raise ValueError if the number of expected reads is negative."""
    if expected_reads < 0:
        raise ValueError(f"expected_reads is {expected_reads}: use 0 or more")
