"""The options of a scan, checked at `load()`."""

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
    session_option_names,
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
_BATCH_OPTIONS = "endingOffsets", "endingTime"
_TIME_OPTIONS = frozenset({"startingTime", "endingTime"})
_STREAM_OPTIONS = "maxRowsPerTrigger", "maxBytesPerTrigger", "pollInterval"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Start or end positions as users write them: one for all topics, or by topic.

    Attributes:
        option: Name of the option.
        raw: The option as the user wrote it.
        nothing: The word for no limit: `earliest` or `latest`.
        everywhere: Position in all topics that are not named; None for no limit.
        by_name: Positions by full name; a name may mean one topic or several.

    """

    option: str
    raw: str
    nothing: str
    everywhere: str | None
    by_name: Mapping[str, str | None]

    @classmethod
    def parse(
        cls, raw: Mapping[str, str], option: str, connector: Connector, nothing: str
    ) -> Offsets:
        """Parse an option; raises ConfigError."""

        def limit(value: object) -> str | None:
            if type(value) not in (str, int):
                raise TypeError(f"{value!r} is not a position")
            text = str(value).strip()
            return None if text.lower() == nothing else text

        text = raw.get(option, nothing).strip()
        offsets = cls(option, text, nothing, None, {})
        try:
            if not text.startswith("{"):
                return replace(offsets, everywhere=limit(text))
            by_name = json.loads(text).items()
            return replace(
                offsets,
                by_name={
                    connector.topic_name(name): limit(value) for name, value in by_name
                },
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise offsets.wrong(error) from None

    def position(self, topic: str, connector: Connector) -> Position | None:
        """Return the position in a topic; raises ConfigError.

        If several names mean the topic, the longest wins.
        """
        names = [name for name in self.by_name if connector.matches(topic, name)]
        longest = max(names, key=len, default=None)
        text = self.everywhere if longest is None else self.by_name[longest]
        try:
            return None if text is None else connector.position(topic, text)
        except ConfigError:  # from a connector without positions
            raise
        except ValueError as error:
            raise self.wrong(error) from None

    def check(self, connector: Connector) -> None:
        """Raise ConfigError if a value is not a position."""
        if self.everywhere is not None:
            replace(self, by_name={}).position("", connector)
        for name in self.by_name:
            self.position(name, connector)

    def wrong(self, problem: object) -> ConfigError:
        """Return the error, which names the values that would be valid."""
        return ConfigError(
            f"option {self.option}={self.raw!r}: {problem}; give {self.nothing}, a "
            'position, or JSON with one for each topic, such as {"topic": '
            f'"{self.nothing}"}}'
        )


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The parsed options of a scan.

    Attributes:
        connector: Name of the connector.
        root: URI of the storage's root.
        selection: The topics.
        starts: First position to read in each topic.
        ends: Position after the last one to read in each topic.
        starts_latest: Whether a stream skips everything stored when it starts.
        start_us: Earliest time to read, in microseconds since 1970; None for any.
        end_us: Time that all rows must precede, likewise.
        fail_on_data_loss: Whether entries that cannot be read are an error.
        min_partitions: Least number of partitions.
        max_rows_per_trigger: Approximate limit of rows in a batch of a stream.
        max_bytes_per_trigger: Limit of stored bytes in a batch of a stream.
        poll_interval_s: Pause of a stream before it lists storage again.
        decoding: The connector's options that change decoded rows.
        raw: The option values as the user wrote them, by their documented names.

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
        """Check a user's options; raises ConfigError."""
        lower = {name.lower(): value for name, value in options.items()}
        _require_no_table(lower)
        name = lower.get("connector", _DEFAULT_CONNECTOR)
        connector = connectors.find(name)
        raw = _as_documented(options, connector.option_names)
        CacheConfig().with_options(raw)
        selection = _selection(raw, connector)
        starts_latest = raw.get(_START, "").strip().lower() == "latest"
        starts = {} if starts_latest else raw
        return cls(
            connector=name,
            root=normal_root(_required(raw, "path", "load('s3://bucket')")),
            selection=selection,
            starts=Offsets.parse(starts, _START, connector, "earliest"),
            ends=Offsets.parse(raw, "endingOffsets", connector, "latest"),
            starts_latest=starts_latest,
            start_us=_time(raw, "startingTime"),
            end_us=_time(raw, "endingTime"),
            fail_on_data_loss=_bool(raw, "failOnDataLoss", default=True),
            min_partitions=_whole_number(raw, "minPartitions") or 1,
            max_rows_per_trigger=_whole_number(raw, "maxRowsPerTrigger"),
            max_bytes_per_trigger=_bytes(raw, "maxBytesPerTrigger"),
            poll_interval_s=_seconds(raw, "pollInterval", default="1s"),
            decoding=connector.decoding(raw),
            raw=raw,
        )

    def __post_init__(self) -> None:
        connector = connectors.find(self.connector)
        if not connector.time_column():
            for name in _TIME_OPTIONS & self.raw.keys():
                raise ConfigError(
                    f"option {name}={self.raw[name]!r}: topics of the connector "
                    f"{self.connector} have no times; remove it here"
                )
        for offsets in (self.starts, self.ends):
            offsets.check(connector)
        if names := self.selection.names:
            matches = connector.matches  # either name may mean several topics
            self._check_names(names, lambda a, b: matches(a, b) or matches(b, a))

    def check_is_batch(self) -> None:
        """Raise ConfigError for an option that only streams have."""
        connector = connectors.find(self.connector)
        names = *_STREAM_OPTIONS, *connector.stream_option_names
        self._check_has_none(names, "spark.readStream")
        if self.starts_latest:
            self._check_has_none([_START], "spark.readStream")

    def check_is_stream(self) -> None:
        """Raise ConfigError for an option that only batches have."""
        self._check_has_none(_BATCH_OPTIONS, "spark.read")

    def _check_has_none(self, names: Sequence[str], method: str) -> None:
        for name in names:
            if name in self.raw:
                raise ConfigError(
                    f"option {name}={self.raw[name]!r}: valid only in {method}; "
                    "remove it here"
                )

    def includes(self, topic: str) -> bool:
        """Return whether the scan reads a topic, stored or not."""
        connector = connectors.find(self.connector)
        if self.selection.pattern is None:
            return any(connector.matches(topic, name) for name in self.selection.names)
        matches = self.selection.pattern.fullmatch  # may match a name of several topics
        names = filter(matches, (topic[:end] for end in range(len(topic), 0, -1)))
        return any(connector.matches(topic, name) for name in names)

    def check_offsets(self, topics: Sequence[str]) -> None:
        """Raise ConfigError if offsets name a topic that the scan does not read."""
        self._check_names(topics, connectors.find(self.connector).matches)

    def _check_names(
        self, topics: Sequence[str], matches: Callable[[str, str], bool]
    ) -> None:
        for offsets in (self.starts, self.ends):
            for name in offsets.by_name:
                if not any(matches(topic, name) for topic in topics):
                    raise ConfigError(
                        f"option {offsets.option}={offsets.raw!r}: {name} is not of "
                        "this scan; give one position for all topics, or JSON such as "
                        f'{{"{next(iter(topics), name)}": "{offsets.nothing}"}}'
                    )

    def consumer(self, topic: str) -> Consumer:
        """Return the consumer for one topic of the scan; raises ConfigError."""
        connector = connectors.find(self.connector)
        start = self.starts.position(topic, connector)
        end = self.ends.position(topic, connector)
        return Consumer(qualified_topic(topic, self.root), start, end)


def _require_no_table(lower: Mapping[str, str]) -> None:
    """Raise ConfigError for `CREATE TABLE`, recognized by the options Spark adds.

    When such a table is read, Spark 4.2 passes no options to a source in Python.
    """
    if {"provider", "owner"} <= lower.keys():
        raise ConfigError(
            "CREATE TABLE ... USING sparkcache: Spark loses the options of such "
            "a table; use CREATE TEMPORARY VIEW orders USING sparkcache OPTIONS "
            "(topic '...', path 's3://bucket')"
        )


def _as_documented(
    options: Mapping[str, str], connector_names: frozenset[str]
) -> dict[str, str]:
    """Return the options by their documented names; Spark ignores the case of names."""
    known = _COMMON_NAMES | scan_option_names() | connector_names
    documented = {name.lower(): name for name in known}
    scopes = dict.fromkeys(node_option_names(), "node")
    scopes |= dict.fromkeys(session_option_names(), "session")
    wider_names = {name.lower(): name for name in scopes}
    for name in options:
        if name.lower() in wider_names:
            setting = wider_names[name.lower()]
            raise ConfigError(
                f"option {name} is a setting of the whole {scopes[setting]}, not of "
                f"one scan: set spark.sparkcache.{setting}"
            )
        if name.lower() not in documented:
            raise ConfigError(suggest(name, known))
    return {documented[name.lower()]: value for name, value in options.items()}


def _required(raw: Mapping[str, str], name: str, example: str) -> str:
    value = raw.get(name, "")
    if not value:
        raise ConfigError(f"option {name} is missing: give {example}")
    return value


def _selection(raw: Mapping[str, str], connector: Connector) -> Selection:
    ways = [name for name in ("topic", "topics", "topicsPattern") if raw.get(name)]
    if not ways and connector.root_topic:
        return Selection((connector.root_topic,))
    if len(ways) != 1:
        raise ConfigError(
            f"option topic is missing: give {_WAYS}"
            if not ways
            else f"options {' and '.join(ways)}: give one of them only: {_WAYS}"
        )
    text = raw[ways[0]]
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
    "topicsPattern, a regular expression that matches full names"
)


def _time(raw: Mapping[str, str], name: str) -> int | None:
    text = raw.get(name)
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


def _bool(raw: Mapping[str, str], name: str, *, default: bool) -> bool:
    try:
        return parse_bool(raw.get(name, str(default)))
    except ValueError as error:
        raise ConfigError(f"option {name}={raw[name]!r}: must be {error}") from error


def _whole_number(raw: Mapping[str, str], name: str) -> int | None:
    text = raw.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(f"option {name}={text!r}: must be a whole number above 0")
    return int(text)


def _bytes(raw: Mapping[str, str], name: str) -> int | None:
    text = raw.get(name)
    if text is None:
        return None
    try:
        size_bytes = parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"option {name}={text!r}: must be {error}") from error
    if size_bytes < 1:
        raise ConfigError(f"option {name}={text!r}: must be at least 1 byte")
    return size_bytes


def _seconds(raw: Mapping[str, str], name: str, *, default: str) -> float:
    text = raw.get(name, default)
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ConfigError(f"option {name}={text!r}: must be {error}") from error
