"""What tasks, the node and its loaders say to each other.

    task -> node      Opening, Take, Finish, Reached, EndPlans, Ask, GetTopicMetrics,
                      GetStatus
    node -> task      Served and Streamed (with a descriptor), Placed, Failed, Refused,
                      KeepAlive, Told, TopicMetricsReply, Status
    node -> loader    Start, Grant, Deny, Cancel, Prepare, Forget, Unmap
    loader -> node    Decoded, Loaded, Streamed (with a descriptor), Passed, Ended,
                      Failed

Placed and Grant come with the descriptor of a segment that the other side has not got
yet, Loaded with that of a run that has memory of its own.

Every message is one frame: its length, how many descriptors come with it, then
msgpack. What does not decode to one of the types of its direction ends the
connection.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from sparkcache.config import CacheConfig
from sparkcache.demand import Plan, ReaderIdentity
from sparkcache.errors import SourceError
from sparkcache.fetch.load import Load
from sparkcache.fetch.scan import RunSlice, Scan
from sparkcache.metrics import Metrics, TopicMetrics
from sparkcache.model import Extent, Ledger, Position, Run, Slot

PROTOCOL_VERSION = 5


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The base of all messages."""


class PackedSlice(msgspec.Struct, frozen=True, array_like=True):
    """A stretch, with the number of its ledger among those of the message."""

    ledger: int
    extent: Extent
    runs: tuple[Run, ...]
    start: int
    stop: int
    at: int


class PackedOpen(Message, frozen=True):
    """An Open on its way; see `sparkcache.node.packed_open`."""

    version: int
    root: str
    config: CacheConfig
    ledgers: tuple[Ledger, ...]
    parts: tuple[PackedSlice, ...]
    reader: ReaderIdentity
    epoch: int
    settings: CacheConfig
    plans: tuple[Plan, ...]
    following: tuple[tuple[int, PackedSlice], ...]
    group: str


class Open(Message, frozen=True):
    """A task begins: what it will read, as whom, and under which settings.

    `epoch` orders the settings and plans of an application: what a task of a newer
    stage says holds. `following` are the first stretches of partitions that come
    after this one, by partition. `group` is whose the topic is, to count by.
    """

    version: int
    scan: Scan
    reader: ReaderIdentity
    epoch: int
    settings: CacheConfig
    plans: tuple[Plan, ...]
    following: tuple[tuple[int, RunSlice], ...] = ()
    group: str = ""


class Take(Message, frozen=True):
    """Wants a run: by stretch, and by index in its runs.

    `read` are runs that the task has finished with since it last spoke, `released`
    those that it maps no longer, each as (stretch, index).
    """

    run_slice: int
    index: int
    read: tuple[tuple[int, int], ...] = ()
    released: tuple[tuple[int, int], ...] = ()


class Finish(Message, frozen=True):
    """Wants no more; says the last things a Take would have said."""

    read: tuple[tuple[int, int], ...] = ()
    released: tuple[tuple[int, int], ...] = ()


class QueryProgress(Message, frozen=True):
    """A query has read topics up to there: by name, whatever their places."""

    query: str
    topics: dict[str, Position]


class EndPlans(Message, frozen=True):
    """These plans are over, by id."""

    ids: tuple[str, ...]


class GetMetrics(Message, frozen=True):
    """Wants the node's metrics."""


class GetTopicMetrics(Message, frozen=True):
    """Wants the node's metrics by topic."""


class GetStatus(Message, frozen=True):
    """Wants all that the node tells of itself."""


class Served(Message, frozen=True):
    """The run, in the descriptor that comes along."""

    size_bytes: int


class ServedFromSegment(Message, frozen=True):
    """The run, in a segment of the ring, and maybe some that follow it in the scan.

    What comes along is the descriptor of the `segment`, if there is one.
    """

    slots: tuple[Slot, ...]
    segment: int | None = None


class Streamed(Message, frozen=True):
    """There is no room for this run: it comes through the pipe that comes along."""


class Failed(Message, frozen=True):
    """The storage failed; what a SourceError says."""

    uri: str
    offset: int | None
    expected: str
    found: str

    @classmethod
    def of(cls, error: SourceError) -> Failed:
        """Put an error into a message."""
        return cls(error.uri, error.offset, error.expected, error.found)

    def error(self) -> SourceError:
        """Take the error out again."""
        return SourceError(
            self.uri, offset=self.offset, expected=self.expected, found=self.found
        )


class Refused(Message, frozen=True):
    """The node cannot serve this task, for this reason."""

    reason: str


class KeepAlive(Message, frozen=True):
    """The run that the task waits for is being seen to: the node lives."""


class MetricsReply(Message, frozen=True):
    """The node's metrics."""

    metrics: Metrics


class TopicMetricsReply(Message, frozen=True):
    """The node's metrics by topic."""

    topics: tuple[TopicMetrics, ...]


class StatusReply(Message, frozen=True):
    """All that the node tells of itself, as JSON; see `sparkcache.node.status`."""

    json: bytes


class Start(Message, frozen=True):
    """A loader's next load. Runs at the indexes in `skip` are passed over."""

    number: int
    root: str
    config: CacheConfig
    load: Load
    skip: frozenset[int]


class Prepare(Message, frozen=True):
    """A load that this loader will be told to start: ask the storage for it now."""

    number: int
    root: str
    config: CacheConfig
    load: Load


class Forget(Message, frozen=True):
    """A load that was prepared will not be started."""

    number: int


class Grant(Message, frozen=True):
    """There is room for the run just decoded. After the `last` one the load is over."""

    slot: Slot
    last: bool = False


class Unmap(Message, frozen=True):
    """These segments are none of the ring's any more, by number."""

    segments: tuple[int, ...]


class Deny(Message, frozen=True):
    """There is none: drop it and go on, once `readers` have got it through pipes."""

    readers: int


class Cancel(Message, frozen=True):
    """Drop it, and the rest of the load too."""


class Decoded(Message, frozen=True):
    """A run is decoded, would take that much, and begins there in its object."""

    index: int
    size_bytes: int
    offset: int
    lost_entries: int = 0


class Skipped(Message, frozen=True):
    """A run was passed over, as told; it begins there in its object."""

    index: int
    offset: int


class Loaded(Message, frozen=True):
    """The run granted is written."""

    index: int


class Ended(Message, frozen=True):
    """The load is over, as asked or because it was cancelled; what it cost."""

    gets: int
    received_bytes: int
    retries: int


FromTask: TypeAlias = (
    PackedOpen
    | Take
    | Finish
    | QueryProgress
    | EndPlans
    | GetMetrics
    | GetTopicMetrics
    | GetStatus
)
ToTask: TypeAlias = (
    Served
    | ServedFromSegment
    | Streamed
    | Failed
    | Refused
    | KeepAlive
    | MetricsReply
    | TopicMetricsReply
    | StatusReply
)
ToLoader: TypeAlias = Start | Grant | Deny | Cancel | Prepare | Forget | Unmap
FromLoader: TypeAlias = Decoded | Skipped | Loaded | Streamed | Ended | Failed
