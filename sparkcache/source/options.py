"""The options of a scan, checked when it is loaded."""

from __future__ import annotations

import json
import re
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
from sparkcache.connector import Selection
from sparkcache.consumers import Consumer
from sparkcache.errors import ConfigError
from sparkcache.model import Position, placed
from sparkcache.storage import normal_root
from sparkcache.units import parse_bool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkcache.connector import Connector

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEFAULT_CONNECTOR = "pulsar"
_COMMON_NAMES = frozenset(
    {
        "path",
        "connector",
        "topic",
        "topics",
        "topicsPattern",
        "startingOffsets",
        "endingOffsets",
        "startingTime",
        "endingTime",
        "failOnDataLoss",
        "minPartitions",
    }
)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Positions, one for all topics or one for each.

    Attributes:
        everywhere: That of topics not named; None for no limit.
        by_topic: That of others, by their full names.

    """

    everywhere: Position | None
    by_topic: Mapping[str, Position | None]

    @classmethod
    def parse(
        cls, given: Mapping[str, str], name: str, connector: Connector, nothing: str
    ) -> Offsets:
        """Read an option; raises ConfigError."""

        def position(text: str) -> Position | None:
            return None if text.strip().lower() == nothing else Position.parse(text)

        text = given.get(name, nothing).strip()
        try:
            if not text.startswith("{"):
                return cls(position(text), {})
            by_topic = json.loads(text).items()
            return cls(
                None,
                {connector.topic_name(name): position(at) for name, at in by_topic},
            )
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(
                f"option {name}={given[name]!r}: must be {nothing}, a position "
                "'ledger:entry', or JSON with one for each topic, such as "
                f'{{"persistent://tenant/namespace/topic": "7:0"}}'
            ) from None

    def of(self, topic: str) -> Position | None:
        """Return the position of a topic."""
        return self.by_topic.get(topic, self.everywhere)


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """What a scan was asked for.

    Attributes:
        connector: Name of the connector.
        root: URI of the storage's root.
        selection: The topics.
        starts: First position wanted of each topic.
        ends: Position after the last one wanted of each topic.
        start_us: Earliest time wanted, in microseconds since 1970; None for any.
        end_us: Time before which rows are wanted, likewise.
        fail_on_data_loss: Whether entries that cannot be read are an error.
        min_partitions: How many partitions there should be at least.
        decoding: What of the connector's options changes decoded rows.
        given: The options as given, names as documented.

    """

    connector: str
    root: str
    selection: Selection
    starts: Offsets
    ends: Offsets
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
        selection = _selection(given, connector)
        return cls(
            connector=name,
            root=normal_root(_required(given, "path", "load('s3://bucket')")),
            selection=selection,
            starts=Offsets.parse(given, "startingOffsets", connector, "earliest"),
            ends=Offsets.parse(given, "endingOffsets", connector, "latest"),
            start_us=_time(given, "startingTime"),
            end_us=_time(given, "endingTime"),
            fail_on_data_loss=_bool(given, "failOnDataLoss", default=True),
            min_partitions=_whole_number(given, "minPartitions", default=1),
            decoding=connector.decoding(given),
            given=given,
        )

    def __post_init__(self) -> None:
        connector = connectors.find(self.connector)
        if names := self.selection.names:
            self.check_offsets(names, lambda name: not connector.names_one(name))

    def check_offsets(
        self,
        topics: Sequence[str],
        is_certain: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Raise ConfigError if offsets are of a topic that is none of the scan's.

        Of a name for which `is_certain` is false that is not known yet.
        """
        for option, offsets in (
            ("startingOffsets", self.starts),
            ("endingOffsets", self.ends),
        ):
            for name in offsets.by_topic:
                if name not in topics and is_certain(name):
                    raise ConfigError(
                        f"option {option}={self.given[option]!r}: {name} is not of "
                        "this scan; give a position 'ledger:entry' for all, or JSON "
                        f'such as {{"{topics[0]}": "7:0"}}'
                    )

    def consumer(self, topic: str) -> Consumer:
        """Return the scan of one of its topics as a planned consumer."""
        start, end = self.starts.of(topic), self.ends.of(topic)
        return Consumer(placed(topic, self.root), start, end)


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


def _selection(given: Mapping[str, str], connector: Connector) -> Selection:
    ways = [name for name in ("topic", "topics", "topicsPattern") if given.get(name)]
    if len(ways) != 1:
        raise ConfigError(
            f"option topic is missing: give {_WAYS}"
            if not ways
            else f"options {' and '.join(ways)}: give one of them alone: {_WAYS}"
        )
    text = given[ways[0]]
    if ways == ["topicsPattern"]:
        try:
            return Selection(pattern=re.compile(text))
        except re.error as error:
            raise ConfigError(
                f"option topicsPattern={text!r}: not a regular expression: {error}"
            ) from None
    names = [text] if ways == ["topic"] else text.split(",")
    full = dict.fromkeys(connector.topic_name(name.strip()) for name in names)
    return Selection(tuple(full))


_WAYS = (
    "topic, a topic's name; topics, several with commas between them; or "
    "topicsPattern, a regular expression for full names"
)


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
