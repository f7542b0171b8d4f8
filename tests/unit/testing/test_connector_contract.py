"""The contract of connectors finds what is wrong with one; it is the smallest's."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lines_connector import SCHEMA, Folders, LinesConnector

from sparkcache.connector import DecodedRun, LedgerMap, RawRun, Resolver, Snapshot
from sparkcache.model import Extent, Position, Run
from sparkcache.testing import MemoryStorage, check_connector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sparkcache.connector import ByteStream, SurroundingRuns
    from sparkcache.model import Ledger, RunKey

LINES = [f"line {number} of the first file" for number in range(40)]


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    storage.put("t/1.txt", "\n".join(LINES).encode())
    storage.put("t/2.txt", b"the second file\n\xff\n")
    storage.put("t/3.txt", b"")
    return storage


def test_what_is_right_passes(storage: MemoryStorage) -> None:
    rows, (loss,) = check_connector(LinesConnector(), storage, "t")
    assert [row["line"] for row in rows] == [*LINES, "the second file"]
    assert (loss.ledger, loss.first) == (2, 16)


NUMBERS = count()


class Unnamed(LinesConnector):
    name = ""


class OptionsInAList(LinesConnector):
    option_names: Any = ["encoding"]  # noqa: RUF012 - this is what is wrong


class UnknownStreamOption(LinesConnector):
    stream_option_names = frozenset({"follow"})


class OtherFullName(LinesConnector):
    def topic_name(self, topic: str) -> str:
        return f"{topic}/"


class AnyPosition(LinesConnector):
    def position(self, topic: str, text: str) -> Position:
        return Position(0, 0)


class PinsAgain(LinesConnector):
    def pin(self, storage: Any, selection: Any, options: Any) -> Mapping[str, str]:
        return {**options, "pinned": f"{next(NUMBERS)}"}


class PinsInPlace(LinesConnector):
    def pin(self, storage: Any, selection: Any, options: Any) -> Mapping[str, str]:
        options["pinned"] = "yes"
        return dict(options)


class NarrowEntries(LinesConnector):
    def schema(self, decoding: str) -> pa.Schema:
        return SCHEMA.set(1, pa.field("offset", pa.int32()))


class OtherColumns(LinesConnector):
    def schema(self, decoding: str) -> pa.Schema:
        return SCHEMA.append(pa.field("more", pa.string()))


class NoTypeOfSpark(LinesConnector):
    def schema(self, decoding: str) -> pa.Schema:
        return SCHEMA.append(pa.field("more", pa.month_day_nano_interval()))


class SharedRuns(LinesConnector):
    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        return [Run(run.first, extent.last) for run in super().runs(extent, run_bytes)]


class RunsOfAQuery(LinesConnector):
    def runs(self, extent: Extent, run_bytes: int) -> Sequence[Run]:
        return super().runs(extent, run_bytes + next(NUMBERS))


class ReadsOnce(LinesConnector):
    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        return super().split(ledger, extent, runs, Once(stream))


class Once:
    def __init__(self, stream: ByteStream) -> None:
        self._data = stream.read(1 << 20)
        self.position = stream.position - len(self._data)

    def read(self, size_bytes: int) -> bytes:
        data, self._data = self._data, b""
        return data

    def close(self) -> None:
        pass


class FromTheStart(LinesConnector):
    """It takes each stream for one that begins with the extent."""

    def split(
        self, ledger: Ledger, extent: Extent, runs: Sequence[Run], stream: ByteStream
    ) -> Iterator[RawRun]:
        raws = super().split(ledger, extent, runs, stream)
        skipped = runs[0].first - extent.first
        yield from (RawRun(raw.run, raw.offset, raw.data[skipped:]) for raw in raws)


class DecodesOnce(LinesConnector):
    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        found = super().decode(ledger, raw, batch_bytes)
        return found if next(NUMBERS) % 2 else DecodedRun([], found.losses)


class Forgets(LinesConnector):
    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        return DecodedRun(super().decode(ledger, raw, batch_bytes).batches[:1])


class EntriesOfOthers(LinesConnector):
    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        later = RawRun(raw.run, raw.offset + 1000, raw.data)
        return super().decode(ledger, later, batch_bytes)


class LossesOfOthers(LinesConnector):
    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        found = super().decode(ledger, raw, batch_bytes)
        if not found.losses:
            return found
        later = RawRun(raw.run, raw.offset + 1000, raw.data)
        losses = super().decode(ledger, later, batch_bytes).losses
        return DecodedRun(found.batches, losses)


class Counts(LinesConnector):
    def __init__(self) -> None:
        self.decoded = 0

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        self.decoded += 1
        return super().decode(ledger, raw, batch_bytes)


class ReversedLedgers(Folders):
    def snapshot(self, topic: str) -> Snapshot:
        return Snapshot(super().snapshot(topic).ledgers[::-1])


class SharedEntries(Folders):
    def snapshot(self, topic: str) -> Snapshot:
        ledgers = super().snapshot(topic).ledgers
        return Snapshot(
            tuple(LedgerMap(found.ledger, found.extents * 2) for found in ledgers)
        )


class BytesOfOthers(Folders):
    def snapshot(self, topic: str) -> Snapshot:
        longer = Extent(0, 4000, 0, 4001)
        ledgers = super().snapshot(topic).ledgers
        return Snapshot((LedgerMap(ledgers[0].ledger, (longer,)), *ledgers[1:]))


def with_catalog(catalog: type[Folders]) -> LinesConnector:
    class Other(LinesConnector):
        def catalog(self, storage: Any, options: Any) -> Folders:
            return catalog(storage, self.decoding(options))

    return Other()


def with_resolver(
    resolve: Callable[[SurroundingRuns, RunKey, DecodedRun, int], DecodedRun],
) -> LinesConnector:
    class Each(Resolver):
        def __init__(self, surrounding: SurroundingRuns) -> None:
            self._surrounding = surrounding
            self._numbers = count()

        def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:
            return resolve(self._surrounding, key, run, next(self._numbers))

    class Other(LinesConnector):
        def resolver(self, decoding: Any, options: Any, surrounding: Any) -> Resolver:
            return Each(surrounding)

    return Other()


def asks_for_others(
    surrounding: SurroundingRuns, key: RunKey, run: DecodedRun, _: int
) -> DecodedRun:
    list(surrounding.after(key))
    return run


def takes_rows(_: object, key: RunKey, run: DecodedRun, number: int) -> DecodedRun:
    batches = [*run.batches]
    run.batches.clear()
    return DecodedRun(batches)


def shares_its_list(_: object, key: RunKey, run: DecodedRun, number: int) -> DecodedRun:
    return DecodedRun(run.batches, run.losses)


def adds_a_column(_: object, key: RunKey, run: DecodedRun, number: int) -> DecodedRun:
    return DecodedRun(
        [batch.append_column("more", batch.column("line")) for batch in run.batches]
    )


def leaves_out_the_first(
    _: object, key: RunKey, run: DecodedRun, number: int
) -> DecodedRun:
    return run if number else DecodedRun([])


@pytest.mark.parametrize(
    ("connector", "rule"),
    [
        (Unnamed(), "`name` is a text"),
        (OptionsInAList(), "`option_names` is a frozenset"),
        (UnknownStreamOption(), "`stream_option_names` is a subset"),
        (OtherFullName(), "topic_name() returns a full name"),
        (AnyPosition(), "position() raises ValueError"),
        (PinsAgain(), "pin() returns pinned options unchanged"),
        (PinsInPlace(), "pin() does not change the options"),
        (NarrowEntries(), "the entry column 'offset' is an int64"),
        (OtherColumns(), "batches begin with the columns of the schema"),
        (NoTypeOfSpark(), "Spark has a type for each column"),
        (SharedRuns(), "runs() covers each entry"),
        (RunsOfAQuery(), "runs() depends on the extent and the size"),
        (ReadsOnce(), "the same rows however few bytes arrive"),
        (FromTheStart(), "the same rows if a load begins at the offset"),
        (DecodesOnce(), "decode() returns the same again"),
        (Forgets(), "the size of batches does not affect rows"),
        (EntriesOfOthers(), "'offset' is ascending and within the run"),
        (LossesOfOthers(), "losses are in their run"),
        (Counts(), "an instance holds constants only"),
        (with_catalog(ReversedLedgers), "ledgers are ordered by their ids"),
        (with_catalog(SharedEntries), "do not overlap"),
        (with_catalog(BytesOfOthers), "is within its object"),
        (with_resolver(asks_for_others), "needs `needs_surrounding_runs`"),
        (with_resolver(takes_rows), "resolve() does not change the run"),
        (with_resolver(shares_its_list), "in a list of their own"),
        (with_resolver(adds_a_column), "and no others"),
        (with_resolver(leaves_out_the_first), "however many tasks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(
    storage: MemoryStorage, connector: LinesConnector, rule: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        check_connector(connector, storage, "t")
    assert rule in str(caught.value)


class Timed(LinesConnector):
    """Lines with times: a microsecond for each byte."""

    kept = slice(None)

    def schema(self, decoding: str) -> pa.Schema:
        return SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))

    def time_column(self) -> str:
        return "at"

    def decode(self, ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
        found = super().decode(ledger, raw, batch_bytes)
        timed = [
            batch.append_column(
                self.schema("").field("at"),
                batch.column("offset").cast(pa.timestamp("us", "UTC")),
            )
            for batch in found.batches
        ]
        return DecodedRun(timed, found.losses)

    def prune(self, storage: Any, extents: Any, times_us: Any, options: Any) -> range:
        is_all = times_us == (None, None)
        return range(len(extents))[slice(None) if is_all else self.kept]


class PrunesTooMuch(Timed):
    kept = slice(1, None)


def test_what_is_pruned_has_no_rows_of_the_times(storage: MemoryStorage) -> None:
    check_connector(Timed(), storage, "t")
    with pytest.raises(AssertionError, match=r"prune\(\) keeps each extent"):
        check_connector(PrunesTooMuch(), storage, "t")
