"""The base classes of connectors: what has to be written, and what has a default."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkcache import connector as connectors
from sparkcache.connector import (
    Catalog,
    ChangeLog,
    Changes,
    Connector,
    DecodedRun,
    Resolver,
    TableConnector,
)
from sparkcache.errors import ConfigError
from sparkcache.model import Ledger, ObjectId, Position, Run, RunKey
from sparkcache.source.options import ScanOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.connector import ByteStream, RawRun, Storage
    from sparkcache.model import Extent, Loss


class Least(Connector):
    """A connector of nothing but what every connector has to have."""

    name = "least"

    def decoding(self, options: Mapping[str, str]) -> str:
        return ""

    def schema(self, decoding: str) -> pa.Schema:
        return pa.schema([("ledger", pa.int64()), ("entry", pa.int64())])

    def entry_columns(self) -> tuple[str, str]:
        return "ledger", "entry"

    def catalog(self, storage: Storage, options: Mapping[str, str]) -> Catalog:
        raise NotImplementedError

    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        return [Run(extent.first, extent.last)]

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        raise NotImplementedError

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        raise NotImplementedError


class WithoutDecode(Least):
    decode = Connector.decode


class WithoutName(Least):
    name = Connector.name


class WithoutChangeLog(Least, TableConnector):
    pass


class WithoutSnapshot(Catalog):
    def select(self, selection: connectors.Selection) -> Sequence[str]:
        return ["t"]


class WithoutLeastId(Changes):
    until: connectors.Mark = MappingProxyType({})

    def __next__(self) -> connectors.Change:
        raise StopIteration


class WithoutLatest(ChangeLog):
    def beginning(self) -> connectors.Mark:
        return {}

    def changes(
        self, after: connectors.Mark, until: connectors.Mark | None = None
    ) -> Changes:
        raise NotImplementedError


class WithoutResolve(Resolver):
    pass


@pytest.mark.parametrize(
    ("incomplete", "missing"),
    [
        (WithoutDecode, "decode"),
        (WithoutName, "name"),
        (WithoutChangeLog, "change_log"),
        (WithoutSnapshot, "snapshot"),
        (WithoutLeastId, "least_id"),
        (WithoutLatest, "latest"),
        (WithoutResolve, "resolve"),
    ],
)
def test_a_class_without_a_method_has_no_instances(
    incomplete: type, missing: str
) -> None:
    with pytest.raises(TypeError, match=rf"{incomplete.__name__}.*\b{missing}\b"):
        incomplete()


def test_the_least_connector_has_topics_of_one_name_each() -> None:
    connector = Least()
    assert repr(connector) == "Least()"
    assert connector.topic_name("a/b") == "a/b"
    assert connector.is_single_topic("a/b")
    assert connector.matches("a/b", "a/b")
    assert not connector.matches("a/b", "a")
    assert connector.group("memory://bucket#a/b") == "memory://bucket#a/b"
    assert connector.position("", "3:7") == Position(3, 7)
    with pytest.raises(ValueError, match="'x' is not a position"):
        connector.position("", "x")


def test_the_least_connector_caches_rows_as_they_are() -> None:
    connector, ledger = Least(), Ledger("least", "t", 1, ObjectId("u", 1, "1"))
    assert not connector.needs_surrounding_runs
    run = DecodedRun([])
    resolver = connector.resolver("", {}, Nothing())
    assert resolver.resolve(RunKey(ledger, Run(0, 1)), run) is run


class Nothing:
    def before(self) -> Iterator[Iterator[DecodedRun]]:
        return iter(())

    def after(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        return iter(())

    def losses(self) -> Sequence[Loss]:
        return ()


@pytest.mark.parametrize("option", ["startingTime", "endingTime"])
def test_times_are_refused_where_rows_have_none(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectors, "find", lambda _: Least())
    options = {"path": "/x", "topic": "t", "connector": "least"}
    ScanOptions.parse(options)
    with pytest.raises(ConfigError, match=f"option {option}='2026-01-31': .* no times"):
        ScanOptions.parse({**options, option: "2026-01-31"})
