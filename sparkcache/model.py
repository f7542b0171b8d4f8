"""The values everything speaks of: positions, objects, ledgers, runs.

All are frozen, hashable and small; none does anything but arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a topic: an entry of a ledger. Written `ledger:entry`."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read `ledger:entry`; raises ValueError for anything else."""
        ledger, separator, entry = text.partition(":")
        if not (separator and ledger.isdecimal() and entry.isdecimal()):
            raise ValueError(f"{text!r} is not a position 'ledger:entry'")
        return cls(int(ledger), int(entry))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


def placed(topic: str, root: str) -> str:
    """Return what a topic is called here: topics of one name may lie in two places."""
    return f"{root}#{topic}"


def is_placed(topic: str, name: str) -> bool:
    """Tell whether a topic as it is called here has that name, in whichever place."""
    return topic.endswith(f"#{name}")


@dataclass(frozen=True, slots=True)
class ObjectId:
    """One version of one stored object, or one that is only ever appended to.

    Attributes:
        uri: Where it lies, such as `s3://bucket/key` or `file:///dir/name`.
        size_bytes: Its whole length; 0 if it may grow.
        version: What changes when its content does: ETag, or time and inode. Empty if
            it may grow, so that it stays the same object: who names it then tells by
            other means whether it was written anew.

    """

    uri: str
    size_bytes: int
    version: str

    def may_grow(self) -> ObjectId:
        """Return the object as one that is appended to, whatever its version."""
        return ObjectId(self.uri, 0, "")


@dataclass(frozen=True, slots=True)
class Ledger:
    """One immutable piece of a topic, as one version of its object.

    Attributes:
        connector: Name of the connector that can read it.
        topic: The topic's full name and place, as `placed` returns it; the same for
            all its ledgers.
        id: Orders the ledgers of a topic. Several may have the same, if their objects
            differ and their entries are in one order: then the first entries of their
            extents order them.
        object: Where its entries lie. Part of the identity: a ledger whose object
            was overwritten is another ledger, so nothing stale is ever a hit.
        decoding: What the connector goes by: how its records are stored, and options
            that change the rows.

    """

    connector: str
    topic: str
    id: int
    object: ObjectId
    decoding: str = ""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a connector reads in one go: consecutive entries, and their bytes.

    Attributes:
        first: Id of its first entry.
        last: Id of its last entry, included.
        offset: Its first byte in the object.
        size_bytes: How many bytes it has there.
        ranges: Where they lie, each by offset and size, if not one behind the other:
            some columns of a Parquet file. It is then read as a whole.

    """

    first: int
    last: int
    offset: int
    size_bytes: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """Consecutive entries of one ledger, `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RunKey:
    """A run of a ledger: the unit that is cached, counted and evicted."""

    ledger: Ledger
    run: Run

    def __str__(self) -> str:
        return f"{self.ledger.topic} {self.ledger.id}:{self.run.first}-{self.run.last}"


class Segment(NamedTuple):
    """A piece of memory for many runs: its number in the ring, and its size."""

    number: int
    size_bytes: int


class Slot(NamedTuple):
    """Memory for a run, from before it is written until its last reader lets go.

    Attributes:
        size_bytes: What it counts for.
        segment: Where it lies; None if the run has memory of its own.
        offset: Where in the segment it begins.

    """

    size_bytes: int
    segment: Segment | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """Entries that cannot be delivered, and why.

    Attributes:
        uri: The object they lie in.
        offset: Where in it the trouble begins, in bytes.
        ledger: The ledger's id.
        first: First entry lost.
        last: Last entry lost, included.
        expected: What should have been there.
        found: What was there.

    """

    uri: str
    offset: int
    ledger: int
    first: int
    last: int
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"entries {self.ledger}:{self.first}-{self.last} lost: {self.uri} at byte "
            f"{self.offset}: expected {self.expected}, found {self.found}"
        )


@dataclass(frozen=True, slots=True)
class ReadToken:
    """One planned read of one partition: the same for every attempt at it.

    Stage ids are unique within an application, so a task that is retried or
    run twice counts once, and both sides of a self-join count.

    Attributes:
        stage: The stage's id.
        partition: The task's index in the stage.
        part: The partition's index in its scan. In a union the second scan's first
            task is not the stage's first; in a coalesced stage one task reads several.

    """

    stage: int
    partition: int
    part: int = 0
