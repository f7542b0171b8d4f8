"""Basic values used everywhere: positions, objects, ledgers, extents, runs.

All of them are frozen, hashable and small, and do nothing but arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The position of an entry in a topic, written `ledger:entry`."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse `ledger:entry`; raises ValueError for any other text."""
        ledger, separator, entry = text.partition(":")
        if not (separator and ledger.isdecimal() and entry.isdecimal()):
            raise ValueError(f"{text!r} is not a position 'ledger:entry'")
        return cls(int(ledger), int(entry))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


def qualified_topic(topic: str, root: str) -> str:
    """Return a topic's name with its root: two roots may have topics of one name.

    The first `#` separates them: in the root it is escaped, in the name it may occur.
    """
    escaped = root.replace("%", "%25").replace("#", "%23")
    return f"{escaped}#{topic}"


def topic_and_root(qualified: str) -> tuple[str, str]:
    """Return the name and the root of a topic that `qualified_topic` returned."""
    root, _, topic = qualified.partition("#")
    return topic, root.replace("%23", "#").replace("%25", "%")


def is_named(topic: str, name: str) -> bool:
    """Return whether a qualified topic has this name, below whichever root."""
    return topic_and_root(topic)[0] == name


@dataclass(frozen=True, slots=True)
class ObjectId:
    """One version of a stored object, or an object that is only ever appended to.

    Attributes:
        uri: Its URI, such as `s3://bucket/key` or `file:///dir/name`.
        size_bytes: Its whole length; 0 if it may grow.
        version: A value that changes with the content: ETag, or time and inode. Empty
            if the object may grow, so that its identity stays the same; the connector
            then detects by other means whether it was overwritten.

    """

    uri: str
    size_bytes: int
    version: str

    def may_grow(self) -> ObjectId:
        """Return this object as one that may grow: without size and version."""
        return ObjectId(self.uri, 0, "")


@dataclass(frozen=True, slots=True)
class Ledger:
    """One immutable piece of a topic, stored in one version of an object.

    Attributes:
        connector: Name of the connector that can read it.
        topic: The topic's full name and root, as `qualified_topic` returns it; the same
            for all ledgers of the topic.
        id: Orders the ledgers of a topic. Several ledgers may share an id if their
            objects differ and their entries form one sequence: then the first entries
            of their extents order them.
        object: The object that stores its entries. Part of the identity: a ledger whose
            object was overwritten is another ledger, so stale data is never a hit.
        decoding: How the connector decodes it: the format of its records, and the
            options that affect rows.

    """

    connector: str
    topic: str
    id: int
    object: ObjectId
    decoding: str = ""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a connector reads in one request: consecutive entries and their bytes.

    Attributes:
        first: Id of its first entry.
        last: Id of its last entry, inclusive.
        offset: Offset of its first byte in the object.
        size_bytes: Number of its bytes in the object.
        ranges: Offset and size of each range of bytes, if they are not contiguous, such
            as some columns of a Parquet file. The extent is then read as a whole.

    """

    first: int
    last: int
    offset: int
    size_bytes: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """Consecutive entries of one ledger, `first` to `last`, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RunKey:
    """A run of a ledger: the unit that is cached, counted and evicted."""

    ledger: Ledger
    run: Run

    def __eq__(self, other: object) -> bool:
        # Of two equal keys the ledgers are mostly one: comparing them takes long.
        return isinstance(other, RunKey) and (
            self.run.first == other.run.first
            and self.run.last == other.run.last
            and (self.ledger is other.ledger or self.ledger == other.ledger)
        )

    def __hash__(self) -> int:
        # Of enough that keys rarely collide, and of little more: every look-up hashes.
        ledger, run = self.ledger, self.run
        return hash((ledger.object.uri, ledger.id, run.first, run.last))

    def __str__(self) -> str:
        return f"{self.ledger.topic} {self.ledger.id}:{self.run.first}-{self.run.last}"


class Segment(NamedTuple):
    """A piece of memory for many runs: its number in the ring, and its size."""

    number: int
    size_bytes: int


class Slot(NamedTuple):
    """Memory of one run, from before it is written until its last reader releases it.

    Attributes:
        size_bytes: The size for which it is accounted.
        segment: The segment that contains it; None if the run has its own memory.
        offset: Offset of its first byte in the segment.

    """

    size_bytes: int
    segment: Segment | None = None
    offset: int = 0


UNKNOWN_END = (1 << 63) - 1
"""The last entry of a loss that reaches to the end of a ledger of unknown length."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A range of entries that cannot be delivered, and the reason.

    Attributes:
        uri: The object that stores the entries.
        offset: Offset in the object at which the problem begins, in bytes.
        ledger: The ledger's id; negative if unknown.
        first: The first lost entry.
        last: The last lost entry, inclusive; may be UNKNOWN_END.
        expected: What should be stored there.
        found: What is stored there.
        rows: How many rows are lost; None if that is not known.

    """

    uri: str
    offset: int
    ledger: int
    first: int
    last: int
    expected: str
    found: str
    rows: int | None = None

    def of_rows(self) -> Loss:
        """Return this loss, with its number of rows, where each entry is a row."""
        rows = self.last - self.first + 1 if self.last < UNKNOWN_END else None
        return replace(self, rows=rows)

    @property
    def entries(self) -> str:
        """The entries in words, such as `entries 7:0-4`."""
        if self.ledger < 0:
            return "all entries of an unknown ledger"
        if self.last < UNKNOWN_END:
            return f"entries {self.ledger}:{self.first}-{self.last}"
        if self.first == 0:
            return f"all entries of ledger {self.ledger}"
        return f"all entries from {self.ledger}:{self.first} on"

    @property
    def reason(self) -> str:
        """What should be stored there, and what is."""
        return f"expected {self.expected}, found {self.found}"

    def __str__(self) -> str:
        return f"{self.entries} lost: {self.uri} at byte {self.offset}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ReadToken:
    """Identity of one planned read of one partition, equal for all attempts at it.

    Stage ids are unique within an application. So a task that is retried or runs twice
    counts once, and both sides of a self-join count.

    Attributes:
        stage: The stage's id.
        partition: The task's index in the stage.
        part: The partition's index in its scan. It may differ from the task's index:
            in a union the second scan's first task is not the first of the stage, and
            in a coalesced stage one task reads several partitions.

    """

    stage: int
    partition: int
    part: int = 0
