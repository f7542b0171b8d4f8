"""The options of a scan, checked when it is loaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.config import (
    CacheConfig,
    node_option_names,
    scan_option_names,
    suggest,
)
from sparkcache.consumers import Consumer
from sparkcache.errors import ConfigError
from sparkcache.model import Position, placed
from sparkcache.storage import normal_root
from sparkcache.units import parse_bool

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEFAULT_CONNECTOR = "pulsar"
_COMMON_NAMES = frozenset(
    {
        "path",
        "connector",
        "topic",
        "startingOffsets",
        "endingOffsets",
        "startingTime",
        "endingTime",
        "failOnDataLoss",
        "minPartitions",
    }
)


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """What a scan was asked for.

    Attributes:
        connector: Name of the connector.
        root: URI of the storage's root.
        topic: Full name of the topic.
        start: First position wanted; None for the first there is.
        end: Position after the last one wanted; None for all there are.
        start_us: Earliest time wanted, in microseconds since 1970; None for any.
        end_us: Time before which rows are wanted, likewise.
        fail_on_data_loss: Whether entries that cannot be read are an error.
        min_partitions: How many partitions there should be at least.
        decoding: What of the connector's options changes decoded rows.
        given: The options as given, names as documented.

    """

    connector: str
    root: str
    topic: str
    start: Position | None
    end: Position | None
    start_us: int | None
    end_us: int | None
    fail_on_data_loss: bool
    min_partitions: int
    decoding: str
    given: Mapping[str, str]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ScanOptions:
        """Check options as a user gave them; raises ConfigError."""
        lower = {name.lower(): value for name, value in options.items()}
        name = lower.get("connector", _DEFAULT_CONNECTOR)
        connector = connectors.find(name)
        given = _as_documented(options, connector.option_names)
        CacheConfig.resolve(options=given)
        topic = connector.topic_name(_required(given, "topic", "a topic's name"))
        return cls(
            connector=name,
            root=normal_root(_required(given, "path", "load('s3://bucket')")),
            topic=topic,
            start=_position(given, "startingOffsets", topic, nothing="earliest"),
            end=_position(given, "endingOffsets", topic, nothing="latest"),
            start_us=_time(given, "startingTime"),
            end_us=_time(given, "endingTime"),
            fail_on_data_loss=_bool(given, "failOnDataLoss", default=True),
            min_partitions=_whole_number(given, "minPartitions", default=1),
            decoding=connector.decoding(given),
            given=given,
        )

    def consumer(self) -> Consumer:
        """Return the scan as a planned consumer."""
        return Consumer(placed(self.topic, self.root), self.start, self.end)


def _as_documented(
    options: Mapping[str, str], of_connector: frozenset[str]
) -> dict[str, str]:
    """Return the options by their documented names; Spark tells no upper from lower."""
    known = _COMMON_NAMES | scan_option_names() | of_connector
    documented = {name.lower(): name for name in known}
    of_node = {name.lower(): name for name in node_option_names()}
    for name in options:
        if name.lower() in of_node:
            raise ConfigError(
                f"option {name} holds for a whole node, not for one scan: set "
                f"spark.sparkcache.{of_node[name.lower()]}"
            )
        if name.lower() not in documented:
            raise ConfigError(suggest(name, known))
    return {documented[name.lower()]: value for name, value in options.items()}


def _required(given: Mapping[str, str], name: str, wanted: str) -> str:
    value = given.get(name, "")
    if not value:
        raise ConfigError(f"option {name} is missing: give {wanted}")
    return value


def _position(
    given: Mapping[str, str], name: str, topic: str, *, nothing: str
) -> Position | None:
    text = given.get(name, nothing).strip()
    if text.lower() == nothing:
        return None
    try:
        if text.startswith("{"):
            by_topic = json.loads(text)
            text = by_topic[topic]
            if text == nothing:
                return None
        return Position.parse(text)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConfigError(
            f"option {name}={given[name]!r}: must be {nothing}, a position "
            f'\'ledger:entry\', or JSON such as {{"{topic}": "7:0"}}'
        ) from None


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        if text.strip().isdecimal():
            time = _EPOCH + timedelta(milliseconds=int(text))
        else:
            time = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise ConfigError(
            f"option {name}={text!r}: must be milliseconds since 1970 or a time such "
            "as 2026-01-31T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since = time - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def _bool(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    try:
        return parse_bool(given.get(name, str(default)))
    except ValueError as error:
        raise ConfigError(f"option {name}={given[name]!r}: must be {error}") from error


def _whole_number(given: Mapping[str, str], name: str, *, default: int) -> int:
    text = given.get(name, str(default))
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(f"option {name}={text!r}: must be a whole number above 0")
    return int(text)
