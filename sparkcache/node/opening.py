"""How a reader in the JVM opens a partition: what was planned, and what its task says.

The JVM knows neither connectors nor settings. It passes on what the planner has packed
for it, together with the local properties of its task, and the node makes of both the
message that a task in Python sends.
"""

from __future__ import annotations

import os
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.errors import ConfigError
from sparkcache.fetch import Scan
from sparkcache.filters import Filter
from sparkcache.model import Ledger, ReadToken
from sparkcache.node.messages import (
    Open,
    Outcome,
    PackedSlice,
    Refused,
    RunAt,
    ServedAt,
    ServedFromSegment,
    Streamed,
    StreamedAt,
)
from sparkcache.node.packed_open import pack_slices, unpack_slice
from sparkcache.node.task_settings import TaskSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.cache import CachedRun
    from sparkcache.config import NodeConfig, ScanConfig, StorageConfig
    from sparkcache.demand import Plan
    from sparkcache.fetch import RunSlice
    from sparkcache.node.messages import Message, OpenPartition
    from sparkcache.node.reader_session import Peer

_MAX_STAGES = 8  # of which the settings are kept


class PlannedPartition(msgspec.Struct, frozen=True, array_like=True):
    """What the planner knows of the reading of one partition.

    Attributes:
        version: The version of the protocol.
        root: The storage's root.
        base: The configuration that `sparkcache.install` shipped, or None, not decoded.
        options: The options of the scan.
        ledgers: The ledgers of the slices, each once.
        parts: The slices to read.
        following: The first slices of later partitions, by partition.
        consumer: The consumer of the topic.
        scan: Id of the scan of this topic.
        part: Index of the partition in the whole scan.
        end: End of the scan in the topic, in stored bytes from the topic's beginning.
        group: The group in which the topic is counted.

    """

    version: int
    root: str
    base: msgspec.Raw
    options: dict[str, str]
    ledgers: tuple[Ledger, ...]
    parts: tuple[PackedSlice, ...]
    following: tuple[tuple[int, PackedSlice], ...]
    consumer: Consumer
    scan: str
    part: int
    end: int
    group: str


def pack(
    version: int,
    root: str,
    base: CacheConfig | None,
    options: dict[str, str],
    slices: tuple[RunSlice, ...],
    following: tuple[tuple[int, RunSlice], ...],
    *identity: object,
) -> bytes:
    """Return a planned partition as it travels; `identity` are the fields after it."""
    ledgers, parts, others = pack_slices(slices, following)
    planned = (version, root, base, options, ledgers, parts, others, *identity)
    return msgspec.msgpack.encode(planned)


def opened(message: OpenPartition) -> Open | None:
    """Return the message of a task in Python; None if its session has no cache.

    Raises ValueError if what was planned cannot be decoded.
    """
    try:
        planned = msgspec.msgpack.decode(message.planned, type=PlannedPartition)
        filters = msgspec.json.decode(message.filters, type=tuple[Filter, ...])
        settings = _settings(
            message.stage,
            frozenset(message.properties.items()),
            frozenset(planned.options.items()),
            bytes(planned.base),
        )
    except (msgspec.MsgspecError, ConfigError) as error:
        raise ValueError(f"a planned partition: {error}") from error
    if not settings.scan.enabled:
        return None
    token = ReadToken(message.stage, message.partition, planned.part)
    slices = tuple(unpack_slice(part, planned.ledgers) for part in planned.parts)
    return Open(
        planned.version,
        Scan(planned.root, settings.storage, settings.scan, slices),
        ReaderIdentity(token, planned.scan, planned.consumer, planned.end),
        settings.epoch,
        settings.node,
        settings.plans,
        tuple(
            (part, unpack_slice(first, planned.ledgers))
            for part, first in planned.following
        ),
        planned.group,
        settings.authority,
        filters,
        message.rows_only,
        message.place,
    )


class _Settings(NamedTuple):
    """What all partitions of a scan are read under, in a stage."""

    storage: StorageConfig
    scan: ScanConfig
    node: NodeConfig
    plans: tuple[Plan, ...]
    epoch: int
    authority: int


@lru_cache(maxsize=_MAX_STAGES)
def _settings(
    stage: int,
    properties: frozenset[tuple[str, str]],
    options: frozenset[tuple[str, str]],
    packed_base: bytes,
) -> _Settings:
    """Return what the tasks of a stage say; raises ConfigError or MsgspecError.

    Resolving them takes longer than all else that opening a partition takes.
    """
    base = msgspec.msgpack.decode(packed_base, type=CacheConfig | None)
    task = TaskSettings.of(dict(properties), ReadToken(stage, 0, 0), base)
    config = task.config.with_options(dict(options))  # checked by planning
    return _Settings(
        config.storage,
        config.scan,
        task.config.node,
        task.plans,
        task.epoch,
        task.authority,
    )


def run_at(index: tuple[int, int], run: CachedRun[int]) -> RunAt:
    """Return where a run is that a reader in the JVM maps."""
    return RunAt(*index, run.size_bytes, run.value, offset=run.slot.offset)


class PathPeer:
    """A peer that cannot receive descriptors: it opens them by their path in /proc."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lent: list[int] = []
        self._stored_bytes = 0

    def __repr__(self) -> str:
        return f"PathPeer({self._peer!r})"

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message, a pipe by its path."""
        match message:
            case Streamed() if fd is not None:
                try:
                    self._lent.append(os.dup(fd))
                except OSError as error:
                    message = Refused(f"no descriptor: {error}")
                else:
                    stored_bytes = self._take_stored_bytes()
                    message = StreamedAt(os.getpid(), self._lent[-1], stored_bytes)
            case ServedFromSegment():
                message = Refused("the engine `ring` serves readers in Python alone")
        self._peer.send(message)

    def send_runs(
        self,
        runs: Mapping[tuple[int, int], CachedRun[int]],
        unmapped: Mapping[tuple[int, int], RunAt] = MappingProxyType({}),
        outcome: Outcome = Outcome.HIT,
    ) -> None:
        """Send where runs are, by index; those not in `unmapped` are pinned."""
        found = (
            unmapped.get(index) or run_at(index, run) for index, run in runs.items()
        )
        stored_bytes = self._take_stored_bytes()
        expected_reads = max((run.expected_reads for run in runs.values()), default=0)
        self._peer.send(
            ServedAt(os.getpid(), tuple(found), outcome, stored_bytes, expected_reads)
        )

    def charge(self, stored_bytes: int) -> None:
        """Add to the size in storage of the runs that it is the first to read."""
        self._stored_bytes += stored_bytes

    def _take_stored_bytes(self) -> int:
        taken, self._stored_bytes = self._stored_bytes, 0
        return taken

    def take_back(self) -> None:
        """Close the pipes that were lent: the peer has opened those it wanted."""
        while self._lent:
            os.close(self._lent.pop())

    def close(self) -> None:
        """Close the connection."""
        self.take_back()
        self._peer.close()
