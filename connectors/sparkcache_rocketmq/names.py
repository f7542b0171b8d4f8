"""Names of queues, and of the objects that they are stored in.

    one object per segment      {md5 of cluster}_{cluster}/{broker}/{topic}/{queue}/
                                COMMIT_LOG/{md5 of base}{base, 20 digits}
    one object per commit       {hash of cluster}/{cluster}/{broker}/{topic}/{queue}/
                                COMMIT_LOG/seg-{base}/chunk/chunk-{offset from base}
                                COMMIT_LOG/seg-{base}/segment/segment-0, once merged

An md5 is cut to its first 8 digits. Names may also begin at the cluster or the broker.

Source: PosixFileSegment and MessageStoreUtil of Apache RocketMQ; the second layout is
that of the S3 provider, which was part of RocketMQ for two days.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import md5

from sparkcache.errors import ConfigError
from sparkcache.model import Position

COMMIT_LOG = "COMMIT_LOG"
CONSUME_QUEUE = "CONSUME_QUEUE"
FORMS = "'TopicA', 'TopicA/3', 'broker-a/TopicA/3' or 'cluster/broker-a/TopicA/3'"

_INDEX_TOPIC = "rmq_sys_INDEX"
_MAX_OFFSET = (1 << 63) - 1
_TREE = r"(?P<broker>[^/]+)/(?P<topic>[^/]+)/(?P<queue>[0-9]{1,9})/(?P<kind>[A-Z_]+)/"
_SEGMENT = re.compile(
    rf"(?:(?P<cluster>[^/]+)/)?{_TREE}(?P<hash>[0-9a-f]{{8}})(?P<base>[0-9]{{20}})"
)
_CHUNK = re.compile(
    rf"(?:(?:-?[0-9]{{1,10}}/)?(?P<cluster>[^/]+)/)?{_TREE}seg-(?P<base>[0-9]{{1,19}})/"
    r"(?:chunk/chunk-(?P<chunk_offset>[0-9]{1,19})|segment/segment-0)"
)
_QUEUE_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """One queue of a topic on one broker, which a scan treats as a topic.

    Attributes:
        cluster: Name of the cluster; empty if the object names begin at the broker.
        broker: Name of the broker.
        topic: Name of the topic at the broker, such as `TopicA` or `%RETRY%group`.
        id: Number of the queue.

    """

    cluster: str
    broker: str
    topic: str
    id: int

    @property
    def path(self) -> str:
        """Name of the queue in the broker's own metadata."""
        return f"{self.broker}/{self.topic}/{self.id}"

    def __str__(self) -> str:
        return f"{self.cluster}/{self.path}" if self.cluster else self.path


@dataclass(frozen=True, slots=True)
class Name:
    """Name as users write it: a queue, or several; omitted parts are None."""

    cluster: str | None
    broker: str | None
    topic: str
    id: int | None

    @classmethod
    def parse(cls, text: str) -> Name:
        """Read a name; raises ConfigError."""
        *rest, last = text.split("/")
        number = int(last) if rest and _QUEUE_NUMBER.fullmatch(last) else None
        parts = [None, None, *(rest if number is not None else [*rest, last])]
        cluster, broker, topic = parts[-3:]
        if len(parts) > 5 or not topic or "" in parts:
            raise ConfigError(
                f"option topic={text!r} is not a topic's name: give {FORMS}"
            )
        return cls(_without_hash(cluster), broker, topic, number)

    def means(self, other: Name | Queue) -> bool:
        """Return whether the name covers another name, or a queue."""
        return all(
            mine in (None, theirs)
            for mine, theirs in (
                (self.cluster, other.cluster),
                (self.broker, other.broker),
                (self.topic, other.topic),
                (self.id, other.id),
            )
        )

    def __str__(self) -> str:
        parts = (self.cluster, self.broker, self.topic, self.id)
        return "/".join(str(part) for part in parts if part is not None)


def full_name(topic: str) -> str:
    """Return the name in the form used for comparison, without the cluster's hash."""
    return str(Name.parse(topic))


def is_one(full: str) -> bool:
    """Return whether at most one queue can have this name."""
    return full.count("/") == 3


def matches(topic: str, name: str) -> bool:
    """Return whether a name covers a queue."""
    return Name.parse(name).means(Name.parse(topic))


def without_queue(queue: str) -> str:
    """Return cluster and topic of a queue's full name."""
    *cluster, _, topic, _ = queue.split("/")
    return "/".join([*cluster, topic])


def position(topic: str, text: str) -> Position:
    """Read a queue offset, or `queueId:offset`; see `Connector.position`."""
    queue = Name.parse(topic).id if topic else None
    id_, separator, offset = text.rpartition(":")
    if not offset.isdecimal() or not (id_.isdecimal() if separator else not id_):
        raise ValueError(
            f"{text!r} is not a position: neither a queue offset, such as 100, nor "
            "'queueId:offset'"
        )
    if separator and queue is not None and int(id_) != queue:
        raise ValueError(f"{text!r} is not a position of queue {queue}")
    return Position(int(id_ or queue or 0), int(offset))


@dataclass(frozen=True, slots=True)
class Key:
    """The parsed name of an object.

    Attributes:
        queue: The queue that the object belongs to.
        kind: COMMIT_LOG or CONSUME_QUEUE.
        base: Start of its segment in the flat file of that kind, in bytes.
        chunk_offset: Start of the chunk in its segment; None for a whole segment.
        is_merged: Whether the object was merged from chunks.

    """

    queue: Queue
    kind: str
    base: int
    chunk_offset: int | None = None
    is_merged: bool = False

    @property
    def start(self) -> int:
        """Start of the object in the flat file, in bytes."""
        return self.base + (self.chunk_offset or 0)

    @classmethod
    def parse(cls, key: str) -> Key | None:
        """Read a name; None if it belongs to no commit log and no consume queue."""
        segment = _SEGMENT.fullmatch(key)
        match = segment or _CHUNK.fullmatch(key)
        if match is None or match["kind"] not in (COMMIT_LOG, CONSUME_QUEUE):
            return None
        base, chunk_offset = int(match["base"]), None
        if segment is not None and segment["hash"] != _hash(str(base)):
            return None
        if segment is None and match["chunk_offset"] is not None:
            chunk_offset = int(match["chunk_offset"])
        if match["topic"] == _INDEX_TOPIC or base + (chunk_offset or 0) > _MAX_OFFSET:
            return None
        cluster = _without_hash(match["cluster"]) or ""
        queue = Queue(cluster, match["broker"], match["topic"], int(match["queue"]))
        is_merged = segment is None and chunk_offset is None
        return cls(queue, match["kind"], base, chunk_offset, is_merged)


def _without_hash(cluster: str | None) -> str | None:
    hash_, _, name = (cluster or "").partition("_")
    return name if name and hash_ == _hash(name) else cluster


def _hash(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()[:8]
