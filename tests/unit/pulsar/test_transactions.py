"""Messages of transactions: rows once these are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkcache.errors import ConfigError
from sparkcache.testing import decoded_runs
from sparkcache_pulsar.testing import Entry, Message

from .resolving import (
    CONNECTOR,
    ONE,
    THIRD,
    TWO,
    UNCOMMITTED,
    marker,
    read,
    single,
    values,
)
from .streaming import manifest
from .topics import TOPIC, TXN_ABORT, TXN_COMMIT, store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.connector import DecodedRun
    from sparkcache.model import Loss, RunKey


MIXED = [
    single(b"plain"),
    single(b"one", txn=ONE),
    single(b"two", txn=TWO),
    single(b"third", txn=THIRD),
    marker(ONE, TXN_COMMIT),
    Entry((Message(b"two, too"), Message(b"and again")), txn=TWO),
    single(b"more"),
    marker(TWO, TXN_ABORT),
]
ENCODED = [entry.encode() for entry in MIXED]


@pytest.mark.parametrize("parts", range(1, 9))
def test_what_was_committed_is_read(parts: int) -> None:
    rows, losses = read(store(ENCODED), parts=parts)
    assert values(rows) == [b"plain", b"one", b"more"]
    assert not losses


@pytest.mark.parametrize("parts", range(1, 9))
def test_what_was_not_can_be_read_with_its_state(parts: int) -> None:
    rows, _ = read(store(ENCODED), UNCOMMITTED, parts=parts)
    assert [(row["value"], row["__txnState"]) for row in rows] == [
        (b"plain", None),
        (b"one", "committed"),
        (b"two", "aborted"),
        (b"third", "undecided"),
        (b"two, too", "aborted"),
        (b"and again", "aborted"),
        (b"more", None),
    ]


@pytest.mark.parametrize("parts", range(1, 6))
def test_what_a_damaged_end_leaves_undecided_is_a_loss(parts: int) -> None:
    """As it may have been committed. Only what is lost after it can be its end."""
    damaged = bytearray(marker(ONE, TXN_COMMIT).encode())
    damaged[-1] ^= 1
    earlier = bytes(damaged)
    written = [single(b"one", txn=ONE), single(b"plain"), single(b"two", txn=TWO)]
    encoded = [entry.encode() for entry in written]
    rows, losses = read(store([*encoded, bytes(damaged)]), parts=parts)
    assert values(rows) == [b"plain"]
    assert [loss.first for loss in losses] == [0, 2, 3]
    assert "the end of the transaction" in str(losses[0])
    assert "entries 7:3-3 are lost" in str(losses[0])
    rows, losses = read(store([earlier, *encoded]), parts=parts)
    assert values(rows) == [b"plain"]
    assert [loss.first for loss in losses] == [0]
    rows, losses = read(store([*encoded, bytes(damaged)]), UNCOMMITTED, parts=parts)
    assert [row["__txnState"] for row in rows] == ["undecided", None, "undecided"]
    assert [loss.first for loss in losses] == [3]


@pytest.mark.parametrize("parts", [1, 2])
def test_an_end_that_may_be_in_a_lost_ledger_leaves_a_loss(parts: int) -> None:
    storage = store([single(b"one", txn=ONE).encode()])
    store([single(b"plain").encode()], ledger=9, storage=storage)
    options = manifest(7, 8, 9, isOffloaded=True) | {"failOnDataLoss": "false"}
    rows, (loss,) = read(storage, options, parts=parts)
    assert values(rows) == [b"plain"]
    assert (loss.ledger, loss.first, loss.last) == (7, 0, 0)
    assert "the end of the transaction" in str(loss)
    earlier = manifest(6, 7, 9, isOffloaded=True) | {"failOnDataLoss": "false"}
    assert not read(storage, earlier, parts=parts)[1]


def test_undecided_messages_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    read(store(ENCODED))
    (record,) = caplog.records
    assert "isolation=read_uncommitted" in record.message


def test_an_end_in_a_later_ledger() -> None:
    storage = store(ENCODED[:4])
    store([b"", *ENCODED[4:]], ledger=9, storage=storage)
    rows, _ = read(storage, parts=2)
    assert values(rows) == [b"plain", b"one", b"more"]


class Ahead:
    """Neighbours of runs; knows how often they were looked at, and who still does."""

    def __init__(self, runs: Sequence[tuple[RunKey, DecodedRun]]) -> None:
        self._runs = runs
        self.begun = self.open = 0

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        return iter(())

    def after(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        self.begun += 1
        self.open += 1
        try:
            yield from (found for found in self._runs if found[0].run > key.run)
        finally:
            self.open -= 1

    def losses(self) -> Sequence[Loss]:
        return ()


def test_a_look_ahead_goes_on_from_its_end_until_overtaken() -> None:
    """Each run has a message of a transaction that ends in the next one."""
    written = [single(b"plain")]
    for number in range(9):
        txn = (0, number)
        written += [single(b"x", txn=txn), marker(txn, TXN_COMMIT)]
    written += [single(b"plain")] * 6
    encoded = [entry.encode() for entry in written]
    size = sum(map(len, encoded)) // len(encoded) + 12  # of one, with its frame
    runs = list(decoded_runs(CONNECTOR, store(encoded), TOPIC, run_bytes=2 * size))
    assert {key.run.last - key.run.first for key, _ in runs[:-1]} == {1}
    ahead = Ahead(runs)
    resolver = CONNECTOR.resolver("", {}, ahead)
    found = [
        (sum(map(len, resolver.resolve(key, run).batches)), ahead.open)
        for key, run in runs
    ]
    assert found == [(2, 1), *[(1, 1)] * 9, (2, 0), (2, 0), (1, 0)]
    assert ahead.begun == 1


def test_runs_without_transactions_have_the_column_all_the_same() -> None:
    rows, _ = read(store([single(b"x").encode()]), UNCOMMITTED)
    assert rows[0]["__txnState"] is None
    assert CONNECTOR.schema(CONNECTOR.decoding(UNCOMMITTED)).names[-2:] == [
        "__txnState",
        "value",
    ]


def test_the_isolation_must_be_one_there_is() -> None:
    with pytest.raises(ConfigError, match="read_committed or read_uncommitted"):
        CONNECTOR.decoding({"isolation": "serializable"})


def test_plain_runs_have_the_plain_schema() -> None:
    plain = single(b"x").encode()
    (_, decoded), *_ = decoded_runs(CONNECTOR, store([plain]), TOPIC)
    assert decoded.batches[0].schema == CONNECTOR.schema("")
