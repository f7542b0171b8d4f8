"""How a reader in the JVM opens a partition: what was planned, and what its task says.

The JVM knows neither connectors nor settings. It passes on what the planner has packed
for it, together with the local properties of its task, and the node makes of both the
message that a task in Python sends.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.errors import ConfigError
from sparkcache.fetch import Scan
from sparkcache.filters import Filter
from sparkcache.model import Ledger, ReadToken
from sparkcache.node.messages import (
    Open,
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
    from sparkcache.fetch import RunSlice
    from sparkcache.node.messages import Message, OpenPartition
    from sparkcache.node.reader_session import Peer


class PlannedPartition(msgspec.Struct, frozen=True, array_like=True):
    """What the planner knows of the reading of one partition.

    Attributes:
        version: The version of the protocol.
        root: The storage's root.
        base: The configuration that `sparkcache.install` shipped, if any.
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
    base: CacheConfig | None
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
        token = ReadToken(message.stage, message.partition, planned.part)
        task = TaskSettings.of(message.properties, token, planned.base)
        config = task.config.with_options(planned.options)  # checked by planning
        filters = msgspec.json.decode(message.filters, type=tuple[Filter, ...])
    except (msgspec.MsgspecError, ConfigError) as error:
        raise ValueError(f"a planned partition: {error}") from error
    if not config.enabled:
        return None
    slices = tuple(unpack_slice(part, planned.ledgers) for part in planned.parts)
    return Open(
        planned.version,
        Scan(planned.root, config.storage, config.scan, slices),
        ReaderIdentity(token, planned.scan, planned.consumer, planned.end),
        task.epoch,
        task.config.node,
        task.plans,
        tuple(
            (part, unpack_slice(first, planned.ledgers))
            for part, first in planned.following
        ),
        planned.group,
        task.authority,
        filters,
        message.rows_only,
    )


class PathPeer:
    """A peer that cannot receive descriptors: it opens them by their path in /proc."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lent: list[int] = []

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
                    message = StreamedAt(os.getpid(), self._lent[-1])
            case ServedFromSegment():
                message = Refused("the engine `ring` serves readers in Python alone")
        self._peer.send(message)

    def send_runs(
        self,
        runs: Mapping[tuple[int, int], CachedRun[int]],
        unmapped: Mapping[tuple[int, int], RunAt] = MappingProxyType({}),
    ) -> None:
        """Send where runs are, by index; those not in `unmapped` are pinned."""
        found = (
            unmapped.get(index) or RunAt(*index, run.size_bytes, run.value)
            for index, run in runs.items()
        )
        self._peer.send(ServedAt(os.getpid(), tuple(found)))

    def take_back(self) -> None:
        """Close the pipes that were lent: the peer has opened those it wanted."""
        while self._lent:
            os.close(self._lent.pop())

    def close(self) -> None:
        """Close the connection."""
        self.take_back()
        self._peer.close()
