"""The options of a scan, checked when it is loaded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
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
from sparkcache.demand import Consumer
from sparkcache.errors import ConfigError
from sparkcache.model import qualified_topic
from sparkcache.storage import normal_root
from sparkcache.units import parse_bool, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkcache.connector import Connector
    from sparkcache.model import Position

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
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "pollInterval",
    }
)
_START = "startingOffsets"
_OF_BATCHES = "endingOffsets", "endingTime"
_OF_STREAMS = "maxRowsPerTrigger", "maxBytesPerTrigger", "pollInterval"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Positions as users write them, one for all topics or one for each.

    Attributes:
        option: Name of the option.
        raw: The option as the user wrote it.
        nothing: What stands for no limit.
        everywhere: That of topics not named; None for no limit.
        by_name: That of others, by full names of one topic or of several.

    """

    option: str
    raw: str
    nothing: str
    everywhere: str | None
    by_name: Mapping[str, str | None]

    @classmethod
    def parse(
        cls, given: Mapping[str, str], option: str, connector: Connector, nothing: str
    ) -> Offsets:
        """Read an option; raises ConfigError."""

        def limit(value: object) -> str | None:
            if type(value) not in (str, int):
                raise TypeError(f"{value!r} is not a position")
            text = str(value).strip()
            return None if text.lower() == nothing else text

        text = given.get(option, nothing).strip()
        offsets = cls(option, text, nothing, None, {})
        try:
            if not text.startswith("{"):
                return replace(offsets, everywhere=limit(text))
            by_name = json.loads(text).items()
            return replace(
                offsets,
                by_name={connector.topic_name(name): limit(at) for name, at in by_name},
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise offsets.wrong(error) from None

    def of(self, topic: str, connector: Connector) -> Position | None:
        """Return the position of a topic; raises ConfigError.

        What was given for its name goes before what was given for a shorter one.
        """
        names = [name for name in self.by_name if connector.matches(topic, name)]
        longest = max(names, key=len, default=None)
        text = self.everywhere if longest is None else self.by_name[longest]
        try:
            return None if text is None else connector.position(topic, text)
        except ConfigError:  # of a connector that has no positions
            raise
        except ValueError as error:
            raise self.wrong(error) from None

    def check(self, connector: Connector) -> None:
        """Raise ConfigError if what was given is no position of any topic."""
        if self.everywhere is not None:
            replace(self, by_name={}).of("", connector)
        for name in self.by_name:
            self.of(name, connector)

    def wrong(self, problem: object) -> ConfigError:
        """Return the error that tells what would do."""
        return ConfigError(
            f"option {self.option}={self.raw!r}: {problem}; give {self.nothing}, a "
            'position, or JSON with one for each topic, such as {"topic": '
            f'"{self.nothing}"}}'
        )


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """What a scan was asked for.

    Attributes:
        connector: Name of the connector.
        root: URI of the storage's root.
        selection: The topics.
        starts: First position wanted of each topic.
        ends: Position after the last one wanted of each topic.
        starts_latest: Whether a stream begins behind all that is there.
        start_us: Earliest time wanted, in microseconds since 1970; None for any.
        end_us: Time before which rows are wanted, likewise.
        fail_on_data_loss: Whether entries that cannot be read are an error.
        min_partitions: How many partitions there should be at least.
        max_rows_per_trigger: Rows of a stream's batch at most, about.
        max_bytes_per_trigger: Stored bytes of a stream's batch at most.
        poll_interval_s: How long a stream waits before it looks again.
        decoding: What of the connector's options changes decoded rows.
        raw: The options as the user wrote them, names as documented.

    """

    connector: str
    root: str
    selection: Selection
    starts: Offsets
    ends: Offsets
    starts_latest: bool
    start_us: int | None
    end_us: int | None
    fail_on_data_loss: bool
    min_partitions: int
    max_rows_per_trigger: int | None
    max_bytes_per_trigger: int | None
    poll_interval_s: float
    decoding: str
    raw: Mapping[str, str]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ScanOptions:
        """Check options as a user gave them; raises ConfigError."""
        lower = {name.lower(): value for name, value in options.items()}
        _require_no_table(lower)
        name = lower.get("connector", _DEFAULT_CONNECTOR)
        connector = connectors.find(name)
        given = _as_documented(options, connector.option_names)
        CacheConfig.resolve(options=given)
        selection = _selection(given, connector)
        starts_latest = given.get(_START, "").strip().lower() == "latest"
        starts = {} if starts_latest else given
        return cls(
            connector=name,
            root=normal_root(_required(given, "path", "load('s3://bucket')")),
            selection=selection,
            starts=Offsets.parse(starts, _START, connector, "earliest"),
            ends=Offsets.parse(given, "endingOffsets", connector, "latest"),
            starts_latest=starts_latest,
            start_us=_time(given, "startingTime"),
            end_us=_time(given, "endingTime"),
            fail_on_data_loss=_bool(given, "failOnDataLoss", default=True),
            min_partitions=_whole_number(given, "minPartitions") or 1,
            max_rows_per_trigger=_whole_number(given, "maxRowsPerTrigger"),
            max_bytes_per_trigger=_bytes(given, "maxBytesPerTrigger"),
            poll_interval_s=_seconds(given, "pollInterval", default="1s"),
            decoding=connector.decoding(given),
            raw=given,
        )

    def __post_init__(self) -> None:
        connector = connectors.find(self.connector)
        for offsets in (self.starts, self.ends):
            offsets.check(connector)
        if names := self.selection.names:
            is_of = connector.matches  # either may be a name of several topics
            self._check_names(names, lambda a, b: is_of(a, b) or is_of(b, a))

    def check_is_batch(self) -> None:
        """Raise ConfigError for an option that means something to streams alone."""
        of_streams = *_OF_STREAMS, *connectors.find(self.connector).stream_option_names
        self._check_has_none(of_streams, "spark.readStream")
        if self.starts_latest:
            self._check_has_none([_START], "spark.readStream")

    def check_is_stream(self) -> None:
        """Raise ConfigError for an option that means something to batches alone."""
        self._check_has_none(_OF_BATCHES, "spark.read")

    def _check_has_none(self, names: Sequence[str], of: str) -> None:
        for name in names:
            if name in self.raw:
                raise ConfigError(
                    f"option {name}={self.raw[name]!r}: it is one of {of}; leave it "
                    "out here"
                )

    def means(self, topic: str) -> bool:
        """Tell whether a topic is one of the scan's, whatever is stored."""
        is_of = connectors.find(self.connector).matches
        if self.selection.pattern is None:
            return any(is_of(topic, name) for name in self.selection.names)
        matches = self.selection.pattern.fullmatch  # a name of several topics, too
        names = filter(matches, (topic[:end] for end in range(len(topic), 0, -1)))
        return any(is_of(topic, name) for name in names)

    def check_offsets(self, topics: Sequence[str]) -> None:
        """Raise ConfigError if offsets are of a topic that is none of the scan's."""
        self._check_names(topics, connectors.find(self.connector).matches)

    def _check_names(
        self, topics: Sequence[str], is_of: Callable[[str, str], bool]
    ) -> None:
        for offsets in (self.starts, self.ends):
            for name in offsets.by_name:
                if not any(is_of(topic, name) for topic in topics):
                    raise ConfigError(
                        f"option {offsets.option}={offsets.raw!r}: {name} is not of "
                        "this scan; give a position for all, or JSON such as "
                        f'{{"{next(iter(topics), name)}": "{offsets.nothing}"}}'
                    )

    def consumer(self, topic: str) -> Consumer:
        """Return the scan of one of its topics as a consumer; raises ConfigError."""
        connector = connectors.find(self.connector)
        start = self.starts.of(topic, connector)
        end = self.ends.of(topic, connector)
        return Consumer(qualified_topic(topic, self.root), start, end)


def _require_no_table(lower: Mapping[str, str]) -> None:
    """Raise ConfigError for `CREATE TABLE`, which Spark tells as options, too.

    When such a table is read, Spark 4.2 gives a source in Python none of them.
    """
    if {"provider", "owner"} <= lower.keys():
        raise ConfigError(
            "CREATE TABLE ... USING sparkcache: Spark does not keep the options of "
            "such a table; CREATE TEMPORARY VIEW orders USING sparkcache OPTIONS "
            "(topic '...', path 's3://bucket') does"
        )


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
    if not ways and connector.root_topic:
        return Selection((connector.root_topic,))
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


def _whole_number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(f"option {name}={text!r}: must be a whole number above 0")
    return int(text)


def _bytes(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        size_bytes = parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"option {name}={text!r}: must be {error}") from error
    if size_bytes < 1:
        raise ConfigError(f"option {name}={text!r}: must be more than nothing")
    return size_bytes


def _seconds(given: Mapping[str, str], name: str, *, default: str) -> float:
    text = given.get(name, default)
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ConfigError(f"option {name}={text!r}: must be {error}") from error
