"""The seam that a kind of topic implements.

A connector knows one format. It finds the ledgers of a topic, says where their
extents and runs lie, cuts a stream of bytes into runs, and decodes a run to Arrow.
It neither caches nor counts, and does all its reading through a `Storage`.

The way of the data:

    pin         options, storage     -> options that no later change alters
    catalog     options, storage     -> a Catalog: which topics there are
    snapshot    a topic              -> a Snapshot: its ledgers and their extents
    changes     a mark               -> what a stream of a table has not read
    prune       extents, times       -> those that may have entries of these times
    runs        an extent            -> its runs, by arithmetic alone
    split       a stream of bytes    -> the raw bytes of one run after another
    decode      one raw run          -> record batches: what is cached
    resolve     one decoded run      -> its rows

Splitting and decoding are two steps because a load may pass over runs that are
held already, and must not pay for decoding them. Resolving is a third, since what a run
holds may have to do with others: it is done by who reads, after the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from re import Pattern

    import pyarrow as pa

    from sparkcache.model import (
        Extent,
        Ledger,
        Loss,
        ObjectId,
        Position,
        Run,
        RunKey,
    )

ENTRY_POINT_GROUP = "sparkcache.connectors"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: its identity, its user metadata, its bytes or the last of them."""

    id: ObjectId
    metadata: Mapping[str, str]
    data: bytes


class ByteStream(Protocol):
    """The bytes of a range of an object, in order."""

    @property
    def position(self) -> int:
        """Offset in the object of the byte that the next `read` begins with."""

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes: at most `size_bytes`, none only at the end."""

    def close(self) -> None:
        """Give up the rest."""


class Storage(Protocol):
    """Reads objects below one root. Raises SourceError, and nothing else."""

    @property
    def root(self) -> str:
        """The URI that all names are relative to, without a slash at the end."""

    def list(self) -> Iterator[ObjectId]:
        """Yield every object below the root, in the order of their names."""

    def get(self, uri: str) -> StoredObject:
        """Read a whole object."""

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        """Read the last bytes of an object: that many, or all that it has."""

    def access(self) -> Mapping[str, str]:
        """Return how a library with a way of its own reaches the root.

        By the names that the object_store library has for endpoint, region and
        credentials. Those are secrets: not to be kept or shown.
        """

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> ByteStream:
        """Read a range of exactly this version of an object, in one request.

        Of one without a version, whatever is there by now; that all of the range is
        there is made sure of in any case. For no bytes no request is made.
        """


@dataclass(frozen=True, slots=True)
class LedgerMap:
    """A ledger and where its extents lie, in the order of their entries."""

    ledger: Ledger
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A topic at the moment of planning.

    Attributes:
        ledgers: In the order of their ids.
        losses: Entries known to be missing.

    """

    ledgers: tuple[LedgerMap, ...]
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class RawRun:
    """A run as it is stored.

    Attributes:
        run: Its entries.
        offset: Its first byte in the object: where a later load may begin; -1 if it
            can be had with all of its extent alone.
        data: Its bytes; may be a view of a larger buffer.
        losses: Entries of it that could not be cut out.

    """

    run: Run
    offset: int
    data: bytes | memoryview
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """A run as it is cached, or as its rows were resolved: entries ascending.

    The batches have one schema, the connector's, which while they are cached may have
    further columns behind. `undecided` are entries with rows that were left out since
    nothing that is there yet tells whether they are any.
    """

    batches: list[pa.RecordBatch]
    losses: tuple[Loss, ...] = field(default=())
    undecided: tuple[Loss, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Selection:
    """Which topics a scan is of: by their names, or by a pattern.

    Attributes:
        names: Full names, as `Connector.topic_name` returns them.
        pattern: What a topic's full name matches as a whole.

    """

    names: tuple[str, ...] = ()
    pattern: Pattern[str] | None = None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topicsPattern={self.pattern.pattern!r}"
        return f"topic={','.join(self.names)!r}"


Mark: TypeAlias = "Mapping[str, int | str | bool]"
"""How far a stream has come in a table; as JSON has it.

The names `reached` and `since` it leaves to offsets, in which they stand beside it.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """What a stream reads next, as a whole.

    Attributes:
        after: Where a stream is that has read it.
        ledger: What there is to read; None if nothing of it is wanted.

    """

    after: Mark
    ledger: LedgerMap | None = None


class Changes(Protocol):
    """Changes in order, looked up as they are asked for. Raises SourceError.

    One that could not be looked up is looked up again when it is asked for again.

    Attributes:
        until: Where a stream is that has read them all.

    """

    until: Mark

    def __iter__(self) -> Iterator[Change]:
        """Return them, from the next one on."""

    def __next__(self) -> Change:
        """Return the next one."""

    def least_id(self) -> int | None:
        """Return an id that no ledger is before that is left; None if none are."""


class ChangeLog(Protocol):
    """What was added to a table, in order: its ledgers do not tell that themselves.

    Raises ConfigError, SourceError.
    """

    def beginning(self) -> Mark:
        """Return where a stream begins that has no checkpoint."""

    def latest(self) -> Mark:
        """Return the mark behind all that there is."""

    def changes(self, after: Mark, until: Mark | None = None) -> Changes:
        """Return what there is between two marks, or behind one.

        The same marks give the same changes, or an error if those are gone.
        """


class Catalog(Protocol):
    """What lay below a root at one moment."""

    def select(self, selection: Selection) -> Sequence[str]:
        """Return the full names of the topics that are meant, each once.

        Raises ConfigError if there are none, or not all that were named.
        """

    def snapshot(self, topic: str) -> Snapshot:
        """Return the ledgers of a topic.

        Raises SourceError if what is stored is not what its index says.
        """


class SurroundingRuns(Protocol):
    """The runs of a topic around those that a task reads. Each call reads anew."""

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield groups of runs, going back from the first that the task reads.

        The runs of a group are in order. Raises SourceError.
        """

    def behind(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs behind one, in order, to the topic's end.

        Raises SourceError.
        """


class Resolver(Protocol):
    """Makes the rows of runs that one task reads."""

    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:
        """Return the rows of the next run. Raises SourceError."""


class Connector(Protocol):
    """A kind of topic. Instances hold nothing but constants.

    Connectors derive from it, and say what is otherwise with them than here. A stream
    reads each ledger that comes, as far as positions say; see `TableConnector`.
    """

    name: str
    """As users name it in the option `connector`."""

    option_names: frozenset[str]
    """Options that it understands beside the common ones."""

    stream_option_names: frozenset[str] = frozenset()
    """Those of them that mean something to streams alone."""

    has_neighbours: bool = True
    """Whether its resolvers look at neighbours; if not, they are shown none."""

    root_topic: str = ""
    """The name of the topic that a root is itself; empty if topics need names."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def topic_name(self, topic: str) -> str:
        """Return the full name of what users may abbreviate; raises ConfigError."""

    def pin(
        self, storage: Storage, selection: Selection, options: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the options with all that has to be looked up, at `load()`, once.

        So a topic that has a schema and versions of its own shows each DataFrame one
        of them. Raises ConfigError, SourceError.
        """
        return options

    def decoding(self, options: Mapping[str, str]) -> str:
        """Return what in the options changes decoded rows; raises ConfigError.

        Of options that are not pinned, what they alone say: they may be wrong.
        """

    def schema(self, decoding: str) -> pa.Schema:
        """Return the columns of every run. Plain types only, as Spark takes them."""

    def entry_columns(self) -> tuple[str, str]:
        """Return the names of the int64 columns that hold ledger and entry id.

        Empty ones if there are none: then what is read of a ledger is all of it.
        """

    def time_column(self) -> str:
        """Return the name of the timestamp column that time options mean."""

    def names_one(self, topic: str) -> bool:
        """Tell whether a full name is that of one topic, whatever is stored."""

    def is_of(self, topic: str, name: str) -> bool:
        """Tell whether a topic is one of those that a full name means."""

    def group(self, topic: str) -> str:
        """Return under what a topic, as `placed` names it, is counted with others."""

    def position(self, topic: str, text: str) -> Position:
        """Return what users write as a position in a topic; raises ValueError.

        Raises ConfigError where no text would do, because there are no positions.
        Of a name that is not that of one topic, and of none, the text alone is checked.
        """

    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        """Find out which topics there are. Raises ConfigError, SourceError."""

    def prune(
        self,
        storage: Storage,
        extents: Sequence[tuple[Ledger, Extent]],
        times_us: tuple[int | None, int | None],
        options: Mapping[str, str],
    ) -> range:
        """Return which of a topic's extents may have entries of these times.

        The first time is included, the second is not; in microseconds since 1970.
        What is returned may be too much, never too little.
        """
        return range(len(extents))

    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        """Cut an extent into runs of about `run_bytes` stored bytes each."""

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        """Yield each of `runs`, which are consecutive.

        The stream begins at the extent's first byte if `runs` begin with its first
        run, otherwise at the `RawRun.offset` once given for the first of them.
        """

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        """Decode a run to batches of about `batch_bytes` each.

        What is corrupt becomes a Loss beside the rows that are not.
        """

    def resolver(
        self, decoding: str, options: Mapping[str, str], surrounding: SurroundingRuns
    ) -> Resolver:
        """Return what makes rows of runs that were decoded so, in order.

        Options that leave `decoding` as it is, so that scans share runs whatever they
        say, come into their own here.
        """


@runtime_checkable
class TableConnector(Connector, Protocol):
    """A kind of topic whose ledgers do not tell what is new: its change log does.

    A stream reads what that tells, each ledger as a whole, and shows resolvers no
    neighbours.
    """

    def change_log(
        self, storage: Storage, topic: str, options: Mapping[str, str]
    ) -> ChangeLog:
        """Return what tells a stream what is new.

        Raises ConfigError if the topic has no streams.
        """


@cache
def find(name: str) -> Connector:
    """Return the installed connector of that name; raises ConfigError."""
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in installed:
        raise ConfigError(
            f"option connector={name!r}: no such connector is installed; "
            f"there is {', '.join(sorted(installed)) or 'none'}"
        )
    connector: Connector = installed[name].load()()
    return connector
