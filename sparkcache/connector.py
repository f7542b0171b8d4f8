"""The interface that a connector implements, one connector per storage format.

A connector finds the ledgers of a topic, computes the offsets of their extents and
runs, splits a stream of bytes into runs, and decodes a run to Arrow. It does not cache
or count anything, and it reads only through a `Storage`.

The steps, with their inputs and results:

    pin         options, storage     -> options that later changes do not affect
    catalog     options, storage     -> a Catalog: the topics that exist
    snapshot    a topic              -> a Snapshot: its ledgers and their extents
    changes     a mark               -> what a stream of a table has not read yet
    prune       extents, times       -> the extents that may contain these times
    runs        an extent            -> its runs, by arithmetic alone
    split       a stream of bytes    -> the raw bytes of each run, in order
    decode      one raw run          -> record batches: these are cached
    resolve     one decoded run      -> the rows of the scan

A connector derives from `Connector` or `TableConnector`, and what these return from
`Catalog`, `Resolver`, `ChangeLog` and `Changes`: a class that lacks an abstract method
cannot be instantiated. What a connector is passed is described by protocols.

Splitting and decoding are separate steps because a load may skip runs that are already
held, and must not pay for decoding them. Resolving is a third step because the rows of
a run may depend on other runs: the reader resolves runs after they leave the cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from sparkcache.errors import ConfigError
from sparkcache.model import Position

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from re import Pattern

    import pyarrow as pa

    from sparkcache.errors import SourceError
    from sparkcache.filters import Filter
    from sparkcache.model import (
        Extent,
        Ledger,
        Loss,
        ObjectId,
        Run,
        RunKey,
    )

ENTRY_POINT_GROUP = "sparkcache.connectors"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: its identity, its user metadata, and all or the last of its bytes.

    Attributes:
        id: Its identity.
        metadata: Its user metadata.
        data: Its bytes, or the last of them.
        modified_ms: When it was written, in milliseconds since 1970.

    """

    id: ObjectId
    metadata: Mapping[str, str]
    data: bytes
    modified_ms: int


class ByteRange(NamedTuple):
    """Consecutive bytes of an object of which one version is meant."""

    object: ObjectId
    offset: int
    size_bytes: int


class ByteStream(Protocol):
    """The bytes of a range of an object, in order."""

    @property
    def position(self) -> int:
        """Offset in the object of the first byte that the next `read` returns."""

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, at most `size_bytes`; empty only at the end."""

    def close(self) -> None:
        """Close the stream; the remaining bytes are not read."""


class Storage(Protocol):
    """Reads objects below one root. Raises no error except SourceError."""

    @property
    def root(self) -> str:
        """The URI that all object names are relative to, without a trailing slash."""

    def list(self, cuts: Sequence[str] = ()) -> Iterator[ObjectId]:
        """Yield every object below the root, ordered by name.

        A long listing may be cut at names, in order, into parts that are made side by
        side. These need not exist, but names should be spread evenly between them.
        """

    def listed(self, uris: Collection[str]) -> dict[str, ObjectId]:
        """Return the identities of objects, by URI, as far as listings tell them.

        Left out are those that do not exist, and those that would take as many requests
        as objects: ask for them one by one.
        """

    def get(self, uri: str) -> StoredObject:
        """Read a whole object."""

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        """Read the last `size_bytes` of an object, or all of a shorter one."""

    def get_many(
        self, uris: Sequence[str], end_bytes: int = 0
    ) -> Iterator[StoredObject | SourceError]:
        """Read small objects, many at once, and yield them in order.

        With `end_bytes`, only the last bytes of each are read, as by `get_end`. What
        cannot be read is yielded as an error in its place.
        """

    def read_many(self, ranges: Sequence[ByteRange]) -> Iterator[bytes | SourceError]:
        """Read small ranges, many at once, as `open` does; yield their bytes in order.

        What cannot be read is yielded as an error in its place.
        """

    def recall(self, kind: str, ids: Sequence[ObjectId]) -> Sequence[bytes | None]:
        """Return what was kept of each of these objects; None if nothing was.

        That is what `remember` was given, here or in an earlier process.
        """

    def remember(self, kind: str, records: Sequence[tuple[ObjectId, bytes]]) -> None:
        """Keep what was read of objects, by their identity, for later processes.

        The kind names what is kept and its format. Raises no error: what could not be
        kept will be read again.
        """

    def access(self) -> Mapping[str, str]:
        """Return the settings with which another library can access the root.

        The keys are those of the object_store library for endpoint, region and
        credentials. Credentials are secrets: do not store or print them.
        """

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> ByteStream:
        """Read a range of exactly this version of an object, in one request.

        An object without a version is read in its current state. In both cases a range
        that is not completely there is an error. An empty range makes no request.
        """


@dataclass(frozen=True, slots=True)
class LedgerMap:
    """A ledger and its extents, ordered by their entries."""

    ledger: Ledger
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ledgers and extents of a topic at the time a query is planned.

    Attributes:
        ledgers: The ledgers with their extents, ordered by ledger id.
        losses: Entries known to be missing.

    """

    ledgers: tuple[LedgerMap, ...]
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class RawRun:
    """A run as it is stored, cut out of an extent and not decoded yet.

    Attributes:
        run: Its entries.
        offset: Offset of its first byte in the object, where a later load may begin;
            -1 if it can only be read together with its whole extent.
        data: Its bytes; may be a view of a larger buffer.
        losses: Entries of the run that could not be cut out.

    """

    run: Run
    offset: int
    data: bytes | memoryview
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """A decoded run, as it is cached, or with its rows resolved; entries ascending.

    Attributes:
        batches: Record batches with the connector's schema. Cached batches may have
            additional columns after those of the schema.
        losses: Entries that cannot be delivered.
        undecided: Entries whose rows were left out because the data stored so far does
            not decide whether they are visible.

    """

    batches: list[pa.RecordBatch]
    losses: tuple[Loss, ...] = field(default=())
    undecided: tuple[Loss, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics that a scan reads, by name or by pattern.

    Attributes:
        names: Full names, as `Connector.topic_name` returns them.
        pattern: Must match the whole full name of a topic.

    """

    names: tuple[str, ...] = ()
    pattern: Pattern[str] | None = None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topicsPattern={self.pattern.pattern!r}"
        return f"topic={','.join(self.names)!r}"


COLLATIONS = b"__COLLATIONS"
"""Metadata of a field with collated strings: JSON, as in the JSON of Spark's schema."""

Mark: TypeAlias = "Mapping[str, int | str | bool]"
"""How far a stream has read a table, as a JSON object.

The keys `reached` and `since` are reserved: a stored offset adds them to the mark.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a table, which a stream reads as a whole.

    Attributes:
        after: The mark of a stream that has read this change.
        ledger: The ledger to read; None if the stream wants none of its rows.

    """

    after: Mark
    ledger: LedgerMap | None = None


class Changes(ABC):
    """Iterator over changes in order, which looks each one up on demand."""

    @property
    @abstractmethod
    def until(self) -> Mark:
        """The mark of a stream that has read all of these changes."""

    def __iter__(self) -> Iterator[Change]:
        """Return this iterator, which continues with the next change."""
        return self

    @abstractmethod
    def __next__(self) -> Change:
        """Return the next change. Raises SourceError; the next call tries it again."""

    @abstractmethod
    def least_id(self) -> int | None:
        """Return a lower bound for the ids of the remaining ledgers; None if none."""


class ChangeLog(ABC):
    """Log of the additions to a table, in order.

    Needed where ledgers alone do not show what is new. Raises ConfigError, SourceError.
    """

    @abstractmethod
    def beginning(self) -> Mark:
        """Return the mark at which a stream without a checkpoint starts."""

    @abstractmethod
    def latest(self) -> Mark:
        """Return the mark after the newest change."""

    @abstractmethod
    def changes(self, after: Mark, until: Mark | None = None) -> Changes:
        """Return the changes between two marks, or all changes after one mark.

        The same marks always give the same changes, or an error if these are gone.
        """


class Catalog(ABC):
    """The topics below a root at one moment."""

    @abstractmethod
    def select(self, selection: Selection) -> Sequence[str]:
        """Return the full names of the selected topics, each once.

        Raises ConfigError if no topic matches, or if one that was named is missing.
        """

    @abstractmethod
    def snapshot(self, topic: str) -> Snapshot:
        """Return the ledgers of a topic.

        Raises SourceError if the stored objects contradict their index.
        """

    def snapshot_for(self, topic: str, filters: Sequence[Filter]) -> Snapshot:
        """Return a snapshot that may lack extents of which no row matches all filters.

        Those on the columns of `Connector.entry_columns` need no attention here.
        Override together with `Connector.filtered_columns`. Raises SourceError.
        """
        return self.snapshot(topic)


class SurroundingRuns(Protocol):
    """The runs before and after those that a task reads. Every call reads again."""

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield groups of runs, backwards from the first run that the task reads.

        Within a group, runs are in ascending order. Raises SourceError.
        """

    def after(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs after `key`, in order, up to the end of the topic.

        Raises SourceError.
        """

    def losses(self) -> Sequence[Loss]:
        """Return the losses of the topic's snapshot, whose entries are in no run."""


class Resolver(ABC):
    """Resolves the runs that one task reads, in order, to rows."""

    @abstractmethod
    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:
        """Return the rows of the next run. Raises SourceError."""


class RowsAsCached(Resolver):
    """The resolver of a connector whose cached runs are the rows of every scan."""

    def __repr__(self) -> str:
        return "RowsAsCached()"

    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:
        """Return the run itself."""
        return run


class Connector(ABC):
    """Connector for one storage format. Instances hold only constants.

    A stream of such a topic reads new ledgers up to a position; see `TableConnector`
    for topics whose streams follow a change log. The methods that are not abstract are
    right for topics that have one name each, no times, and rows that are cached as
    they are.
    """

    option_names: frozenset[str] = frozenset()
    """Names of the options it accepts in addition to the common ones."""

    stream_option_names: frozenset[str] = frozenset()
    """The subset of `option_names` that applies only to streams."""

    needs_surrounding_runs: bool = False
    """Whether its resolvers read surrounding runs; if False, they get none."""

    can_narrow: bool = False
    """Whether it fetches single columns; see `narrowed`."""

    root_topic: str = ""
    """Name of the topic if the root itself is one; empty if topics need names."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The value of the option `connector` that selects it; a class attribute."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def topic_name(self, topic: str) -> str:
        """Return the full name of a topic, which users may abbreviate.

        Raises ConfigError.
        """
        return topic

    def pin(
        self, storage: Storage, selection: Selection, options: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the options with everything filled in that has to be looked up.

        Called once, at `load()`. So a DataFrame keeps one schema and one version of a
        topic that has schemas and versions of its own. Options that are pinned already
        come back unchanged. Raises ConfigError, SourceError.
        """
        return options

    @abstractmethod
    def decoding(self, options: Mapping[str, str]) -> str:
        """Return the part of the options that affects decoded rows; "" if none does.

        Also called with options that are not pinned yet and may be wrong: then return
        what they say by themselves. Raises ConfigError.
        """

    @abstractmethod
    def schema(self, decoding: str) -> pa.Schema:
        """Return the columns of every run; only plain types, which Spark accepts.

        A field of collated strings has their collations as metadata; see COLLATIONS.
        """

    @abstractmethod
    def entry_columns(self) -> tuple[str, str]:
        """Return the names of the int64 columns that hold ledger and entry id.

        Both are empty if there are no such columns: then ledgers are read whole.
        """

    def time_column(self) -> str:
        """Return the name of the timestamp column that time options refer to.

        Empty if there is none.
        """
        return ""

    def is_single_topic(self, topic: str) -> bool:
        """Return whether a full name means exactly one topic, whatever is stored."""
        return True

    def matches(self, topic: str, name: str) -> bool:
        """Return whether a topic is among those that the full name `name` means."""
        return topic == name

    def group(self, topic: str) -> str:
        """Return the group in which a topic is counted together with others.

        `topic` is a name as `qualified_topic` returns it.
        """
        return topic

    def position(self, topic: str, text: str) -> Position:
        """Parse a position that a user wrote, such as `ledger:entry`.

        Raises ValueError, or ConfigError if the topic has no positions, so that no text
        is valid. If `topic` is empty or does not mean exactly one topic, only check the
        text.
        """
        return Position.parse(text)

    @abstractmethod
    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        """Find the topics below the root. Raises ConfigError, SourceError."""

    def prune(
        self,
        storage: Storage,
        extents: Sequence[tuple[Ledger, Extent]],
        times_us: tuple[int | None, int | None],
        options: Mapping[str, str],
    ) -> range:
        """Return the range of a topic's extents that may contain these times.

        Times are in microseconds since 1970; the first is inclusive, the second
        exclusive, None is unbounded. The range may be too large, never too small.
        """
        return range(len(extents))

    def narrowed(
        self, options: Mapping[str, str], columns: Collection[str]
    ) -> Mapping[str, str]:
        """Return pinned options of a scan for which only some columns are fetched.

        Override it if that saves bytes, and set `can_narrow`. Runs of other columns are
        other runs. Columns that the options need for themselves are fetched, too.
        """
        return options

    def filtered_columns(self, decoding: str) -> frozenset[str]:
        """Return the columns whose filters `Catalog.snapshot_for` pays attention to."""
        return frozenset()

    def row_count(self, ledger: Ledger, first: int, last: int) -> int | None:
        """Return how many rows the entries `first` to `last` of a ledger have.

        None if only reading them tells. A count of all rows is then not read at all.
        """
        return None

    def bounded_columns(self, decoding: str) -> Sequence[str]:
        """Return the columns of whose values the node keeps the bounds of each run.

        The reader in the JVM leaves out held runs that cannot match a query's filters.
        """
        return [name for name in (*self.entry_columns(), self.time_column()) if name]

    def selects_rows(self, options: Mapping[str, str]) -> bool:
        """Return whether resolvers change runs that have the columns of the schema.

        If not, the reader in the JVM serves such runs as they are cached. Runs with
        more columns are always resolved.
        """
        return type(self).resolver is not Connector.resolver

    @abstractmethod
    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        """Cut an extent into runs of about `run_bytes` stored bytes each."""

    @abstractmethod
    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        """Yield the raw bytes of each of `runs`, which are consecutive.

        The stream begins at the extent's first byte if `runs` begin with the extent's
        first run, otherwise at the `RawRun.offset` that an earlier split returned for
        the first of `runs`. It may end where the run after the last of `runs` begins.
        """

    @abstractmethod
    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        """Decode a run to batches of about `batch_bytes` each.

        Corrupt entries become losses; the other entries are decoded nevertheless.
        """

    def decode_all(
        self, runs: Sequence[tuple[Ledger, RawRun]], batch_bytes: int
    ) -> list[DecodedRun]:
        """Decode small runs of one topic that have the same `Ledger.decoding`.

        Override it if that costs less than to decode one after another.
        """
        return [self.decode(ledger, raw, batch_bytes) for ledger, raw in runs]

    def resolver(
        self, decoding: str, options: Mapping[str, str], surrounding: SurroundingRuns
    ) -> Resolver:
        """Return the resolver for runs that were decoded with `decoding`.

        Options that do not affect `decoding` take effect here, so scans that differ
        only in these share cached runs.
        """
        return RowsAsCached()


class TableConnector(Connector):
    """Connector for topics whose change log, not their ledgers, shows what is new.

    A stream reads the changes of that log, each ledger as a whole. Its resolvers get
    no surrounding runs.
    """

    @abstractmethod
    def change_log(
        self, storage: Storage, topic: str, options: Mapping[str, str]
    ) -> ChangeLog:
        """Return the change log that a stream of the topic follows.

        Raises ConfigError if the topic cannot be read as a stream.
        """


@cache
def find(name: str) -> Connector:
    """Return the installed connector with this name; raises ConfigError."""
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in installed:
        raise ConfigError(
            f"option connector={name!r}: no such connector is installed; "
            f"installed: {', '.join(sorted(installed)) or 'none'}"
        )
    connector: Connector = installed[name].load()()
    return connector
