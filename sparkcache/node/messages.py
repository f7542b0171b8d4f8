"""The messages between tasks, the node and its loaders.

    task -> node      PackedOpen or OpenPartition, Take, Finish, LoadedDirectly,
                      QueryProgress, EndPlans, Clear, ReportLosses, GetMetrics,
                      GetTopicMetrics, GetLosses, GetStatus
    node -> task      Served and Streamed (with a descriptor), ServedAt and StreamedAt
                      (for readers in the JVM), ServedFromSegment, LoadDirectly,
                      Failed, Refused, KeepAlive, MetricsReply, TopicMetricsReply,
                      LossesReply, StatusReply
    node -> loader    Start, Grant, GrantBundle, Deny, Cancel, Prepare, Forget, Unmap
    loader -> node    Decoded, DecodedTogether, Skipped, Loaded, LoadedBundle,
                      Streamed (with a descriptor), Ended, Failed

ServedFromSegment and Grant carry the descriptor of a segment if the peer does not have
it yet. Loaded carries the descriptor of a run that has its own memory, LoadedBundle
that of the memory that its runs share.

Every message is one frame: its length, the number of attached descriptors, then
msgpack. A frame that does not decode to a type of its direction ends the connection, as
does a descriptor that is not announced, or with a message that carries none.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, TypeAlias

import msgspec

from sparkcache.config import NodeConfig, ScanConfig, StorageConfig
from sparkcache.demand import Plan, ReaderIdentity
from sparkcache.errors import CredentialsError, SourceError
from sparkcache.fetch.direct_load import DirectLoad
from sparkcache.fetch.load import Load
from sparkcache.fetch.scan import RunSlice, Scan
from sparkcache.filters import Filter, RunStatistics
from sparkcache.homes import Place
from sparkcache.metrics import Metrics, TopicMetrics
from sparkcache.model import Extent, Ledger, Position, Run, Slot
from sparkcache.reported_loss import ReportedLoss

PROTOCOL_VERSION = 12


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base class of all messages.

    Attributes:
        carries_descriptor: Whether a descriptor may be attached.

    """

    carries_descriptor: ClassVar[bool] = False


class PackedSlice(msgspec.Struct, frozen=True, array_like=True):
    """A slice, with its ledger as an index into the ledgers of the message."""

    ledger: int
    extent: Extent
    runs: tuple[Run, ...]
    start: int
    stop: int
    topic_offset: int
    reads: int = 0


class PackedOpen(Message, frozen=True):
    """An Open as it is sent; see `sparkcache.node.packed_open`."""

    version: int
    root: str
    storage: StorageConfig
    config: ScanConfig
    ledgers: tuple[Ledger, ...]
    parts: tuple[PackedSlice, ...]
    reader: ReaderIdentity
    epoch: int
    settings: NodeConfig
    plans: tuple[Plan, ...]
    following: tuple[tuple[int, PackedSlice], ...]
    group: str
    authority: int
    place: Place
    can_load: bool = False


class OpenPartition(Message, frozen=True):
    """Opens a partition for a reader in the JVM; see `sparkcache.node.opening`.

    `planned` is a PlannedPartition, `properties` are local properties of the task,
    `filters` those of the query, as JSON. With `rows_only` the task wants no columns.
    `place` says whether this executor is the home of the partition.
    """

    planned: bytes
    stage: int
    partition: int
    properties: dict[str, str]
    filters: str = "[]"
    rows_only: bool = False
    place: Place = Place.ANYWHERE


class Open(Message, frozen=True):
    """A task's first message: what it will read, as which reader, under which settings.

    `epoch` orders the settings and plans of an application: those of the newest stage
    apply; of settings, those with the highest `authority` so far. `following` are the
    first slices of later partitions, by partition. `group` is the owner of the topic,
    for the node's counts. `filters` and `rows_only` are those of OpenPartition: a run
    that cannot match, or of whose rows only the number matters, need not be mapped.
    Runs that are loaded for a task at the `place` AWAY are not kept: their home is to
    keep them. A task that `can_load` may be assigned to load runs itself.
    """

    version: int
    scan: Scan
    reader: ReaderIdentity
    epoch: int
    settings: NodeConfig
    plans: tuple[Plan, ...]
    following: tuple[tuple[int, RunSlice], ...] = ()
    group: str = ""
    authority: int = 0
    filters: tuple[Filter, ...] = ()
    rows_only: bool = False
    place: Place = Place.ANYWHERE
    can_load: bool = False


class Take(Message, frozen=True):
    """Asks for a run, by slice and by index in the runs of the slice.

    `read` are the runs that the task has read since its last message, `released` those
    that it has unmapped, each as (slice, index).
    """

    run_slice: int
    index: int
    read: tuple[tuple[int, int], ...] = ()
    released: tuple[tuple[int, int], ...] = ()


class Finish(Message, frozen=True):
    """Ends the reading; reports the last runs read and released, as a Take does."""

    read: tuple[tuple[int, int], ...] = ()
    released: tuple[tuple[int, int], ...] = ()


class LoadedDirectly(Message, frozen=True):
    """Reports runs that a LoadDirectly named, in order: those read since the last one.

    Carries their sizes, their offsets in the object, -1 where one is unknown, and what
    the task has spent since its last report. Has no reply.
    """

    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    lost_entries: int = 0
    gets: int = 0
    received_bytes: int = 0
    retries: int = 0


class QueryProgress(Message, frozen=True):
    """A query has read its topics, by name without URI, up to these positions."""

    query: str
    topics: dict[str, Position]


class EndPlans(Message, frozen=True):
    """The plans with these ids are over."""

    ids: tuple[str, ...]


class Clear(Message, frozen=True):
    """Evict all runs of a topic, or of all topics if it is None."""

    topic: str | None = None


class ReportLosses(Message, frozen=True):
    """A task has left out these losses, and more that it does not list."""

    losses: tuple[ReportedLoss, ...]
    not_listed: int = 0


class GetMetrics(Message, frozen=True):
    """Asks for the node's metrics."""


class GetTopicMetrics(Message, frozen=True):
    """Asks for the node's metrics by topic."""


class GetLosses(Message, frozen=True):
    """Asks for the losses that tasks have left out."""


class GetStatus(Message, frozen=True):
    """Asks for the node's metrics, topics and plans as JSON."""


class Served(Message, frozen=True):
    """The requested run, in the attached descriptor.

    `bundle` is empty if the run has its own memory. Otherwise it has offset and size of
    the run, and of runs right after it, in memory that they share.
    """

    carries_descriptor: ClassVar[bool] = True
    size_bytes: int
    bundle: tuple[tuple[int, int], ...] = ()


class Outcome(IntEnum):
    """Whether a run was held, was being loaded, or had to be loaded."""

    HIT = 0
    WAIT = 1
    MISS = 2


class RunAt(msgspec.Struct, frozen=True, array_like=True):
    """A run at /proc/PID/fd/`fd`, by slice and by index in the runs of the slice.

    A run that need not be mapped has no descriptor, which is -1. Then `rows` is the
    number of its rows, and unless it `matches` none of them passes the filters. A run
    in a bundle begins at an `offset`.
    """

    run_slice: int
    index: int
    size_bytes: int
    fd: int
    rows: int = 0
    matches: bool = True
    offset: int = 0


class ServedAt(Message, frozen=True):
    """The requested run, and held runs right after it, for a reader in the JVM.

    `outcome` is how the requested run was found; those after it are hits.
    `stored_bytes` is the size in storage of the runs that this reader is the first to
    read, since the last reply. `expected_reads` is the most planned reads that any of
    the runs has to come, with this one.
    """

    pid: int
    runs: tuple[RunAt, ...]
    outcome: Outcome = Outcome.HIT
    stored_bytes: int = 0
    expected_reads: int = 0


class StreamedAt(Message, frozen=True):
    """As Streamed, with the pipe at /proc/PID/fd/FD until the reader's next message.

    `stored_bytes` as in ServedAt.
    """

    pid: int
    fd: int
    stored_bytes: int = 0


class ServedFromSegment(Message, frozen=True):
    """The requested run in a segment of the ring, and maybe runs after it in the scan.

    The descriptor of `segment` is attached, if `segment` is set.
    """

    carries_descriptor: ClassVar[bool] = True
    slots: tuple[Slot, ...]
    segment: int | None = None


class LoadDirectly(Message, frozen=True):
    """The task is to load the requested run itself, and the runs after it.

    They would not be kept, and nobody else waits for them. The first load begins with
    the requested run.
    """

    loads: tuple[DirectLoad, ...]


class Streamed(Message, frozen=True):
    """No memory was granted for this run: it comes through the attached pipe."""

    carries_descriptor: ClassVar[bool] = True


class Failed(Message, frozen=True):
    """The storage failed; carries the fields of a SourceError.

    `lacks_credentials` is set for a CredentialsError: a task may have others than the
    node.
    """

    uri: str
    offset: int | None
    expected: str
    found: str
    lacks_credentials: bool = False

    @classmethod
    def from_error(cls, error: SourceError) -> Failed:
        """Return the message for an error."""
        lacks_credentials = isinstance(error, CredentialsError)
        return cls(
            error.uri, error.offset, error.expected, error.found, lacks_credentials
        )

    def error(self) -> SourceError:
        """Return the error of the message."""
        error_class = CredentialsError if self.lacks_credentials else SourceError
        return error_class(
            self.uri, offset=self.offset, expected=self.expected, found=self.found
        )


class Refused(Message, frozen=True):
    """The node cannot serve this task, for this reason."""

    reason: str


class KeepAlive(Message, frozen=True):
    """The node is alive and still loading the run that the task waits for."""


class MetricsReply(Message, frozen=True):
    """The node's metrics."""

    metrics: Metrics


class TopicMetricsReply(Message, frozen=True):
    """The node's metrics by topic."""

    topics: tuple[TopicMetrics, ...]


class LossesReply(Message, frozen=True):
    """The losses that tasks have left out, and how many reports were not kept."""

    losses: tuple[ReportedLoss, ...]
    not_kept: int


class StatusReply(Message, frozen=True):
    """The node's metrics, topics and plans as JSON; see `sparkcache.node.status`."""

    json: bytes


class Start(Message, frozen=True):
    """The loader's next load. Runs at the indexes in `skip` are skipped.

    Small loads, of one run each, are done `together`; the runs of `more` follow.
    """

    number: int
    root: str
    storage: StorageConfig
    load: Load
    skip: frozenset[int]
    batch_bytes: int
    together: bool = False
    more: tuple[Load, ...] = ()


class Prepare(Message, frozen=True):
    """A load that this loader may have to start later: request its bytes now."""

    number: int
    root: str
    storage: StorageConfig
    load: Load
    together: bool = False
    more: tuple[Load, ...] = ()


class Forget(Message, frozen=True):
    """A prepared load will not be started."""

    number: int


class Grant(Message, frozen=True):
    """The decoded run may be written to `slot`; the load ends after the `last` one."""

    carries_descriptor: ClassVar[bool] = True
    slot: Slot
    last: bool = False


class GrantBundle(Message, frozen=True):
    """Write the decoded runs with these indexes to memory that they share.

    `offsets` are theirs. The other runs follow one by one.
    """

    indexes: tuple[int, ...]
    offsets: tuple[int, ...]
    size_bytes: int


class Unmap(Message, frozen=True):
    """The ring has dropped the segments with these numbers."""

    segments: tuple[int, ...]


class Deny(Message, frozen=True):
    """No memory for the decoded run: stream it to `readers` readers, then go on."""

    readers: int


class Cancel(Message, frozen=True):
    """Drop the decoded run and the rest of the load."""


class Decoded(Message, frozen=True):
    """A run is decoded, with its size in memory and its offset in the object.

    Carries what the loader has spent since it last reported that.
    """

    index: int
    size_bytes: int
    offset: int
    lost_entries: int = 0
    gets: int = 0
    received_bytes: int = 0
    retries: int = 0


class DecodedRun(msgspec.Struct, frozen=True, array_like=True):
    """One of several decoded runs: the fields are those of Decoded."""

    index: int
    size_bytes: int
    offset: int


class DecodedTogether(Message, frozen=True):
    """The runs of small loads are decoded, or their storage has failed.

    Failures are by index. Carries what the loader has spent since it last reported
    that.
    """

    runs: tuple[DecodedRun, ...]
    failures: tuple[tuple[int, Failed], ...]
    lost_entries: int
    gets: int
    received_bytes: int
    retries: int


class LoadedBundle(Message, frozen=True):
    """The granted runs are written; `statistics` of each as in Loaded."""

    carries_descriptor: ClassVar[bool] = True
    statistics: tuple[RunStatistics | None, ...]


class Skipped(Message, frozen=True):
    """A run was skipped as requested, with its offset in the object."""

    index: int
    offset: int


class Loaded(Message, frozen=True):
    """The granted run is written; `statistics` if its rows are those of scans."""

    carries_descriptor: ClassVar[bool] = True
    index: int
    statistics: RunStatistics | None = None


class Ended(Message, frozen=True):
    """The load is over, complete or cancelled.

    Carries what the loader has spent since it last reported that.
    """

    gets: int
    received_bytes: int
    retries: int


FromTask: TypeAlias = (
    PackedOpen
    | OpenPartition
    | Take
    | Finish
    | LoadedDirectly
    | QueryProgress
    | EndPlans
    | Clear
    | ReportLosses
    | GetMetrics
    | GetTopicMetrics
    | GetLosses
    | GetStatus
)
ToTask: TypeAlias = (
    Served
    | ServedAt
    | StreamedAt
    | ServedFromSegment
    | LoadDirectly
    | Streamed
    | Failed
    | Refused
    | KeepAlive
    | MetricsReply
    | TopicMetricsReply
    | LossesReply
    | StatusReply
)
ToLoader: TypeAlias = (
    Start | Grant | GrantBundle | Deny | Cancel | Prepare | Forget | Unmap
)
FromLoader: TypeAlias = (
    Decoded
    | DecodedTogether
    | Skipped
    | Loaded
    | LoadedBundle
    | Streamed
    | Ended
    | Failed
)
