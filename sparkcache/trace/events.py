"""The events of a trace, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sparkcache.demand import ExtentOffset, Plan, ReaderIdentity
    from sparkcache.model import Position, RunKey

HEADER = "sparkcache-trace 1"


@dataclass(frozen=True, slots=True)
class Begin:
    """A plan begins."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Over:
    """Plans end."""

    plan_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """A task begins to read a partition: see `Forecast.open`."""

    task: int
    reader: ReaderIdentity
    plan_ids: tuple[str, ...]
    extents: tuple[ExtentOffset, ...]
    first: Position
    stop: Position


@dataclass(frozen=True, slots=True)
class Take:
    """A task takes a run."""

    task: int
    key: RunKey


@dataclass(frozen=True, slots=True)
class Read:
    """A task has finished with a run."""

    task: int
    key: RunKey


@dataclass(frozen=True, slots=True)
class Close:
    """A task ends."""

    task: int


@dataclass(frozen=True, slots=True)
class Put:
    """A run is inserted because somebody has written it."""

    key: RunKey


Event: TypeAlias = Begin | Over | Open | Take | Read | Close | Put


@dataclass(slots=True)
class Sizes:
    """Bytes of a run in storage and in memory; None if the latter is unknown."""

    stored_bytes: int
    size_bytes: int | None = None


@dataclass(slots=True)
class Trace:
    """The reads and plans that a cache has seen.

    Attributes:
        runs: All runs that the events mention.
        events: The events in order, each with its time in seconds.

    """

    runs: dict[RunKey, Sizes] = field(default_factory=dict)
    events: list[tuple[float, Event]] = field(default_factory=list)

    def size_bytes(self, key: RunKey) -> int:
        """Return the size of a run in memory or, if unknown, in storage."""
        sizes = self.runs[key]
        return sizes.stored_bytes if sizes.size_bytes is None else sizes.size_bytes

    def takes(self) -> list[RunKey]:
        """Return the runs that tasks take, in order."""
        return [event.key for _, event in self.events if isinstance(event, Take)]
