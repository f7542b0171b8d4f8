"""Parse and format names of topics and keys of objects, as Pulsar writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

DOMAIN = "persistent://"
FORMS = "'persistent://tenant/namespace/topic', 'tenant/namespace/topic' or 'topic'"
LAST_ID = (1 << 63) - 1

_KEY = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-ledger-([0-9]{1,19})")
_SEGMENT_KEY = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(-index)?")
_FILE_KEY = re.compile(
    r"(?:(.*)/)?([0-9]{1,19})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(data|index)"
)
_PARTITION = re.compile(r"-partition-(0|[1-9][0-9]{0,8})\Z")
_INDEX_SUFFIX = "-index"
_INDEX_FILE, _DATA_FILE = "/index", "/data"

CUTS = tuple(f"{number:02x}" for number in range(1, 256))
"""Names between which the objects of the other two offloaders are spread evenly."""


def full_name(topic: str) -> str:
    """Return `persistent://tenant/namespace/topic`; raises ConfigError."""
    if (full := topic_of_managed_ledger(topic)) is not None:
        return full
    parts = topic.removeprefix(DOMAIN).split("/")
    if len(parts) == 1 and not topic.startswith(DOMAIN):
        parts = ["public", "default", *parts]
    if len(parts) != 3 or not all(parts) or "://" in "/".join(parts):
        raise ConfigError(f"option topic={topic!r} is not a topic's name: give {FORMS}")
    return DOMAIN + "/".join(parts)


def topic_of_managed_ledger(name: str) -> str | None:
    """Return the topic of a managed ledger; None if the name is not of that form.

    The last part of a managed ledger's name is URL-encoded, with `+` for a space.
    """
    match name.split("/"):
        case [tenant, namespace, "persistent", topic] if tenant and namespace and topic:
            return f"{DOMAIN}{tenant}/{namespace}/{unquote_plus(topic)}"
        case _:
            return None


def partition(topic: str) -> int | None:
    """Return N of `...-partition-N`; None for any other topic."""
    match = _PARTITION.search(topic)
    return int(match[1]) if match else None


def without_partition(topic: str) -> str:
    """Return the topic's name without a partition suffix."""
    return _PARTITION.sub("", topic)


def by_partition(topic: str) -> tuple[str, int]:
    """Return a sort key: by topic, then by number of partition."""
    number = partition(topic)
    return without_partition(topic), -1 if number is None else number


def partitions_of(topic: str, topics: Iterable[str]) -> list[str]:
    """Return the partitions of a topic among `topics`, in order."""
    matching = (name for name in topics if without_partition(name) == topic)
    return sorted((name for name in matching if name != topic), key=by_partition)


def namespace(topic: str) -> str:
    """Return `tenant/namespace` of a topic's full name."""
    return "/".join(topic.removeprefix(DOMAIN).split("/")[:2])


def stem_of(name: str) -> tuple[str, bool]:
    """Return what the names of an index and of its data share, and which it is.

    What is shared is the name of the data, if an offloader has written them.
    """
    if name.endswith(_INDEX_SUFFIX):
        return name[: -len(_INDEX_SUFFIX)], True
    if name.endswith(_INDEX_FILE):
        return name[: -len(_INDEX_FILE)] + _DATA_FILE, True
    return name, False


def parse(stem: str) -> Key | SegmentKey | FileKey | None:
    """Parse the name of data; None if no offloader has written them."""
    return Key.parse(stem) or SegmentKey.parse(stem) or FileKey.parse(stem)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The key of an offloaded object: its ledger, its attempt, and index or data.

    Each attempt at offloading a ledger has a uuid of its own.
    """

    ledger: int
    uuid: str
    is_index: bool

    @classmethod
    def parse(cls, key: str) -> Key | None:
        """Parse a key; None if the offloader did not write it."""
        match = _KEY.fullmatch(key.removesuffix(_INDEX_SUFFIX))
        if match is None or int(match[2]) > LAST_ID:
            return None
        return cls(int(match[2]), match[1], key.endswith(_INDEX_SUFFIX))

    @property
    def index(self) -> Key:
        """The key of the index."""
        return Key(self.ledger, self.uuid, is_index=True)

    def __str__(self) -> str:
        suffix = _INDEX_SUFFIX if self.is_index else ""
        return f"{self.uuid}-ledger-{self.ledger}{suffix}"


@dataclass(frozen=True, slots=True, order=True)
class SegmentKey:
    """The key of an object in the streaming format (PIP-76), which names no ledger."""

    uuid: str
    is_index: bool

    @classmethod
    def parse(cls, key: str) -> SegmentKey | None:
        """Parse a key; None if it is not of that format."""
        match = _SEGMENT_KEY.fullmatch(key)
        return cls(match[1], match[2] is not None) if match else None

    def __str__(self) -> str:
        return f"{self.uuid}{_INDEX_SUFFIX if self.is_index else ''}"


@dataclass(frozen=True, slots=True, order=True)
class FileKey:
    """The name of a file of the file system offloader: `<ledger>-<uuid>/data`.

    Attributes:
        folder: Parent of the ledger's folder; it ends in the managed ledger's name.
        ledger: The ledger's id.
        uuid: Identifies the attempt at offloading.
        is_index: Whether the file is `index`.

    """

    folder: str
    ledger: int
    uuid: str
    is_index: bool

    @classmethod
    def parse(cls, key: str) -> FileKey | None:
        """Parse a name; None if that offloader did not write it."""
        match = _FILE_KEY.fullmatch(key)
        if match is None or int(match[2]) > LAST_ID:
            return None
        return cls(match[1] or "", int(match[2]), match[3], match[4] == "index")

    def topic(self) -> str | None:
        """Return the topic that the folder names; None if the folder is too short."""
        return topic_of_managed_ledger("/".join(self.folder.split("/")[-4:]))

    def __str__(self) -> str:
        folder = f"{self.folder}/" if self.folder else ""
        return (
            f"{folder}{self.ledger}-{self.uuid}/{'index' if self.is_index else 'data'}"
        )
