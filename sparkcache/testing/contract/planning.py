"""The rules of planning: constants, names, options, ledgers and extents."""

from __future__ import annotations

import pickle
from contextlib import suppress
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.connector import Selection
from sparkcache.model import qualified_topic
from sparkcache.testing.contract.comparing import require
from sparkcache.testing.contract.reading import Scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.connector import Connector, Snapshot, Storage
    from sparkcache.model import Extent, Ledger


def check_constants(connector: Connector) -> None:
    """Check the attributes of a connector."""
    name: object = connector.name
    require(isinstance(name, str) and bool(name), "`name` is a text, not empty")
    for attribute in ("option_names", "stream_option_names"):
        names = getattr(connector, attribute)
        require(
            isinstance(names, frozenset) and all(isinstance(n, str) for n in names),
            f"`{attribute}` is a frozenset of texts",
        )
    require(
        connector.stream_option_names <= connector.option_names,
        "`stream_option_names` is a subset of `option_names`",
    )
    require(
        isinstance(connector.needs_surrounding_runs, bool),
        "`needs_surrounding_runs` is True or False",
    )
    require(isinstance(connector.root_topic, str), "`root_topic` is a text")
    require(
        repr(type(connector)()) == repr(connector),
        "the class is instantiated without arguments",
    )


def check_names(connector: Connector, topic: str) -> str:
    """Check the names of a topic; return its full name."""
    name = connector.topic_name(topic)
    for full in {name, connector.root_topic} - {""}:
        require(
            connector.topic_name(full) == full,
            f"topic_name() returns a full name, such as {full!r}, unchanged",
        )
        require(connector.matches(full, full), f"{full!r} matches itself")
        require(
            isinstance(connector.is_single_topic(full), bool),
            "is_single_topic() returns True or False",
        )
    with suppress(ValueError):
        connector.position("", "\0")
        require(False, "position() raises ValueError for what is no position")
    return name


def check_pin(
    connector: Connector, storage: Storage, name: str, options: dict[str, str]
) -> Scan:
    """Check the options and the columns; return what a scan has of them."""
    given, selection = dict(options), Selection((name,))
    require(
        isinstance(connector.decoding(options), str),
        "decoding() returns a text for options that are not pinned, too",
    )
    pinned = connector.pin(storage, selection, options)
    require(options == given, "pin() does not change the options it is passed")
    require(
        all(isinstance(text, str) for text in chain(pinned, pinned.values())),
        "pin() returns texts by the names of options",
    )
    require(
        connector.pin(storage, selection, pinned) == pinned,
        "pin() returns pinned options unchanged",
    )
    decoding = connector.decoding(pinned)
    require(
        connector.decoding(dict(reversed(list(pinned.items())))) == decoding,
        "decoding() does not depend on the order of options",
    )
    schema = connector.schema(decoding)
    _check_columns(connector, schema)
    return Scan(connector, storage, pinned, decoding, schema)


def _check_columns(connector: Connector, schema: pa.Schema) -> None:
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_schema

    require(len(set(schema.names)) == len(schema.names), "names of columns occur once")
    try:
        from_arrow_schema(schema, prefer_timestamp_ntz=True)
    except PySparkTypeError as error:
        raise AssertionError(f"Spark has a type for each column: {error}") from error
    columns = connector.entry_columns()
    require(
        all(columns) or not any(columns),
        "entry_columns() returns two names, or two empty texts",
    )
    for column in filter(None, columns):
        require(
            column in schema.names and schema.field(column).type == pa.int64(),
            f"the entry column {column!r} is an int64 of the schema",
        )
    if time := connector.time_column():
        require(
            time in schema.names and pa.types.is_timestamp(schema.field(time).type),
            f"the time column {time!r} is a timestamp of the schema",
        )


def check_select(scan: Scan, name: str) -> Sequence[str]:
    """Check the catalog; return the topics that a name means."""
    connector = scan.connector
    topics = scan.connector.catalog(scan.storage, scan.options).select(
        Selection((name,))
    )
    require(
        len(set(topics)) == len(topics) > 0,
        "select() returns each topic once, and raises ConfigError if there is none",
    )
    for topic in topics:
        require(
            connector.matches(topic, name) and connector.topic_name(topic) == topic,
            f"select() returns full names that match {name!r}",
        )
        group = connector.group(qualified_topic(topic, scan.storage.root))
        require(isinstance(group, str) and bool(group), "group() returns a text")
    require(
        not connector.is_single_topic(name) or list(topics) == [name],
        f"{name!r} is a single topic, so select() returns it alone",
    )
    return topics


def check_snapshot(scan: Scan, topic: str) -> Snapshot:
    """Check the ledgers and extents of a topic; return them."""
    connector, storage = scan.connector, scan.storage
    snapshot = connector.catalog(storage, scan.options).snapshot(topic)
    require(
        connector.catalog(storage, scan.options).snapshot(topic) == snapshot,
        "the snapshot of a topic that does not change stays the same",
    )
    require(
        pickle.loads(pickle.dumps(snapshot)) == snapshot,  # noqa: S301 - our own
        "a snapshot can be pickled, as Spark does to ship it",
    )
    spans = []
    for ledger_map in snapshot.ledgers:
        ledger = ledger_map.ledger
        require(ledger.connector == connector.name, "ledgers name their connector")
        require(
            ledger.topic == qualified_topic(topic, storage.root),
            "ledgers have the topic that qualified_topic() returns",
        )
        require(
            connector.schema(ledger.decoding) == scan.schema,
            "a ledger's decoding and the scan's have the same schema",
        )
        for extent in ledger_map.extents:
            _check_extent(ledger, extent)
            spans.append((ledger.id, extent.first, extent.last))
    ids = [ledger_map.ledger.id for ledger_map in snapshot.ledgers]
    require(ids == sorted(ids), "ledgers are ordered by their ids")
    require(
        all(
            ledger != next_ledger or last < first
            for (ledger, _, last), (next_ledger, first, _) in pairwise(spans)
        ),
        "extents of one ledger id are ordered by their entries, and do not overlap",
    )
    return snapshot


def _check_extent(ledger: Ledger, extent: Extent) -> None:
    require(hash((ledger, extent)) is not None, "ledgers and extents are hashable")
    require(0 <= extent.first <= extent.last, f"{extent} has entries")
    require(extent.offset >= 0 and extent.size_bytes > 0, f"{extent} has bytes")
    ranges = extent.ranges or ((extent.offset, extent.size_bytes),)
    require(
        sum(size_bytes for _, size_bytes in ranges) == extent.size_bytes
        and ranges[0][0] == extent.offset,
        f"{extent} has the offset and the size of its ranges",
    )
    end = max(offset + size_bytes for offset, size_bytes in ranges)
    require(
        not ledger.object.size_bytes or end <= ledger.object.size_bytes,
        f"{extent} is within its object",
    )
