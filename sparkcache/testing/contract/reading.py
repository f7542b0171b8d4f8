"""The rules of reading: runs, batches, rows and times."""

from __future__ import annotations

import operator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.connector import DecodedRun
from sparkcache.fetch import Load, begin, fetch
from sparkcache.model import RunKey
from sparkcache.testing.contract.comparing import (
    are_equal,
    fields,
    is_same,
    require,
    through_memory,
)
from sparkcache.testing.reading import RunsAround, as_dicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkcache.connector import (
        ByteStream,
        Connector,
        RawRun,
        Snapshot,
        Storage,
        SurroundingRuns,
    )
    from sparkcache.model import Extent, Ledger, Loss, Run

_BATCH_BYTES = 1 << 20
_READS = 50  # of an extent whose bytes arrive a few at a time
_TIMES = 8


@dataclass(frozen=True)
class Scan:
    """A scan of a topic, with its options as they are pinned."""

    connector: Connector
    storage: Storage
    options: Mapping[str, str]
    decoding: str
    schema: pa.Schema

    def read(
        self, snapshot: Snapshot, run_bytes: int
    ) -> tuple[list[dict[str, Any]], list[Loss]]:
        """Check what is read of a snapshot; return its rows and losses."""
        runs: list[tuple[RunKey, DecodedRun]] = []
        extents: list[tuple[Ledger, Extent]] = []
        times: list[list[int]] = []
        for ledger_map in snapshot.ledgers:
            for extent in ledger_map.extents:
                found = self._read_extent(ledger_map.ledger, extent, run_bytes)
                runs += found
                extents.append((ledger_map.ledger, extent))
                times.append(self._times_us(run for _, run in found))
        self._check_prune(extents, times)
        rows, losses = self._resolved(runs, 1, snapshot.losses)
        for parts in {2, 3, len(runs)} - {0}:
            require(
                is_same(self._resolved(runs, parts, snapshot.losses), (rows, losses)),
                "the rows are the same, however many tasks read a topic",
            )
        return rows, losses

    # An extent

    def _read_extent(
        self, ledger: Ledger, extent: Extent, run_bytes: int
    ) -> list[tuple[RunKey, DecodedRun]]:
        runs = tuple(self.connector.runs(extent, run_bytes))
        self._check_cover(extent, runs, run_bytes)
        end = extent.offset + extent.size_bytes
        whole = Load(ledger, extent, runs, extent.offset, end)
        offsets: list[int] = []
        found: list[DecodedRun] = []
        for raw in self._fetch(whole):
            require(
                raw.offset == -1 or extent.offset <= raw.offset <= end,
                "the offset of a raw run is in its extent, or -1",
            )
            offsets.append(raw.offset)
            found.append(self._decode(ledger, raw))
        slowly = self._fetch(whole, max(1, extent.size_bytes // _READS))
        self._check_same(ledger, slowly, found, "however few bytes arrive at a time")
        for index, load in _parts(whole, offsets):
            self._check_same(
                ledger,
                self._fetch(load),
                found[index : index + len(load.runs)],
                "if a load begins at the offset of a raw run, and ends at that of "
                "another",
            )
        return [
            (RunKey(ledger, run), one) for run, one in zip(runs, found, strict=True)
        ]

    def _check_cover(self, extent: Extent, runs: Sequence[Run], run_bytes: int) -> None:
        require(
            tuple(self.connector.runs(extent, run_bytes)) == runs,
            "runs() depends on the extent and the size of runs alone",
        )
        require(
            bool(runs)
            and (runs[0].first, runs[-1].last) == (extent.first, extent.last)
            and all(run.first <= run.last for run in runs)
            and all(run.last + 1 == after.first for run, after in pairwise(runs)),
            f"runs() covers each entry of {extent} once, in order",
        )

    def _fetch(self, load: Load, most_bytes: int | None = None) -> Iterator[RawRun]:
        stream = begin(self.storage, load)
        if most_bytes is not None:
            stream = _SlowStream(stream, most_bytes)
        with closing(fetch(self.connector, load, stream)) as raws:
            yield from raws

    def _check_same(
        self,
        ledger: Ledger,
        raws: Iterable[RawRun],
        expected: Sequence[DecodedRun],
        rule: str,
    ) -> None:
        for raw, run in zip(raws, expected, strict=True):
            again = self.connector.decode(ledger, raw, _BATCH_BYTES)
            require(are_equal(again, run), f"a run has the same rows {rule}")

    # A run

    def _decode(self, ledger: Ledger, raw: RawRun) -> DecodedRun:
        """Check a raw run's decoding; return it as it comes out of the cache."""
        stored = bytes(raw.data)
        run = self.connector.decode(ledger, raw, _BATCH_BYTES)
        again = self.connector.decode(ledger, raw, _BATCH_BYTES)
        small = self.connector.decode(ledger, raw, 1)
        require(bytes(raw.data) == stored, "decode() does not change the raw run")
        require(are_equal(again, run), "decode() returns the same again")
        require(are_equal(small, run), "the size of batches does not affect rows")
        require(not run.undecided, "decode() leaves `undecided` to the resolver")
        for batch in run.batches:
            batch.validate(full=True)
            require(
                batch.schema == run.batches[0].schema,
                "all batches of a run have the same columns",
            )
            require(
                fields(batch.schema)[: len(self.schema)] == fields(self.schema),
                "batches begin with the columns of the schema",
            )
        self._check_entries(RunKey(ledger, raw.run), run)
        for loss in run.losses:
            require(
                loss.ledger == ledger.id
                and raw.run.first <= loss.first <= loss.last <= raw.run.last,
                f"losses are in their run, {raw.run}: {loss}",
            )
        rows = self.connector.row_count(ledger, raw.run.first, raw.run.last)
        require(
            bool(run.losses)
            or rows in (None, sum(batch.num_rows for batch in run.batches)),
            f"row_count() is the number of rows, or None: {rows}",
        )
        require(
            set(self.connector.bounded_columns(self.decoding)) <= {*self.schema.names},
            "bounded_columns() are columns of the schema",
        )
        cached = through_memory(run, self.schema)
        require(are_equal(cached, run), "a run comes out of the cache as it went in")
        return cached

    def _check_entries(self, key: RunKey, run: DecodedRun) -> None:
        """Check the entry columns of a decoded or resolved run."""
        ledger_column, entry_column = self.connector.entry_columns()
        if not entry_column:
            return
        last = key.run.first
        for batch in filter(len, run.batches):
            ledgers = batch.column(ledger_column)
            require(
                pc.all(pc.equal(ledgers, key.ledger.id)).as_py()
                and not ledgers.null_count,
                f"the column {ledger_column!r} holds the id of the ledger",
            )
            entries = batch.column(entry_column).to_pylist()
            require(
                None not in entries
                and all(one <= other for one, other in pairwise([last, *entries]))
                and entries[-1] <= key.run.last,
                f"the column {entry_column!r} is ascending and within the run",
            )
            last = entries[-1]

    # A topic

    def _resolved(
        self,
        runs: Sequence[tuple[RunKey, DecodedRun]],
        parts: int,
        missing: Sequence[Loss],
    ) -> tuple[list[dict[str, Any]], list[Loss]]:
        """Return the rows and losses of runs that several tasks resolve."""
        rows: list[dict[str, Any]] = []
        losses: list[Loss] = []
        for part in range(parts):
            start, stop = len(runs) * part // parts, len(runs) * (part + 1) // parts
            around: SurroundingRuns = RunsAround(runs, start, missing)
            if not self.connector.needs_surrounding_runs:
                around = _NoRuns()
            resolver = self.connector.resolver(self.decoding, self.options, around)
            for key, held in runs[start:stop]:
                run = DecodedRun(list(held.batches), held.losses)
                resolved = resolver.resolve(key, run)
                self._check_resolved(key, held, run, resolved)
                losses += resolved.losses
                for batch in resolved.batches:
                    rows += as_dicts(batch)
        return rows, losses

    def _check_resolved(
        self, key: RunKey, held: DecodedRun, run: DecodedRun, resolved: DecodedRun
    ) -> None:
        require(
            len(run.batches) == len(held.batches)
            and all(map(operator.is_, run.batches, held.batches)),
            "resolve() does not change the run it is passed",
        )
        require(
            resolved is run or resolved.batches is not run.batches,
            "resolve() returns the run itself, or batches in a list of their own",
        )
        for batch in resolved.batches:
            batch.validate(full=True)
            require(
                fields(batch.schema) == fields(self.schema),
                "resolved batches have the columns of the schema, and no others",
            )
        self._check_entries(key, resolved)

    def _times_us(self, runs: Iterable[DecodedRun]) -> list[int]:
        """Return the times of rows in microseconds, each once."""
        column = self.connector.time_column()
        if not column:
            return []
        found: set[int] = set()
        for batch in chain.from_iterable(run.batches for run in runs):
            times = batch.column(column).cast(pa.timestamp("us", "UTC"))
            found |= set(times.cast(pa.int64()).drop_null().to_pylist())
        return sorted(found)

    def _check_prune(
        self, extents: Sequence[tuple[Ledger, Extent]], times: Sequence[list[int]]
    ) -> None:
        all_times = sorted(set(chain.from_iterable(times)))
        some = all_times[:: max(1, len(all_times) // _TIMES)] + all_times[-1:]
        bounds: list[tuple[int | None, int | None]] = [(None, None)]
        for time in some:
            bounds += [(time, None), (None, time), (time, time + 1)]
        for start, end in bounds:
            kept = self.connector.prune(
                self.storage, extents, (start, end), self.options
            )
            require(
                isinstance(kept, range)
                and kept.step == 1
                and (not kept or 0 <= kept.start < kept.stop <= len(extents)),
                "prune() returns a range of indexes of the extents",
            )
            needed = [
                index
                for index, found in enumerate(times)
                if any(
                    (start is None or start <= time) and (end is None or time < end)
                    for time in found
                )
            ]
            if (start, end) == (None, None):
                needed = list(range(len(extents)))
            require(
                set(needed) <= set(kept),
                "prune() keeps each extent that has rows of these times",
            )


def _parts(whole: Load, offsets: Sequence[int]) -> Iterator[tuple[int, Load]]:
    """Yield loads of single runs, and of the second half, where offsets allow it."""
    last = len(whole.runs)
    stops = [*(offset if offset >= 0 else whole.end for offset in offsets), whole.end]
    for index, offset in enumerate(offsets):
        if index == 0 or offset >= 0:
            start = offset if index else whole.offset
            yield index, _part(whole, index, index + 1, start, stops[index + 1])
    middle = last // 2
    if middle and offsets[middle] >= 0:
        yield middle, _part(whole, middle, last, offsets[middle], whole.end)


def _part(whole: Load, start: int, stop: int, offset: int, end: int) -> Load:
    return Load(whole.ledger, whole.extent, whole.runs[start:stop], offset, end)


@dataclass
class _SlowStream:
    """A stream of which each read returns a few bytes only."""

    stream: ByteStream
    most_bytes: int

    @property
    def position(self) -> int:
        return self.stream.position

    def read(self, size_bytes: int) -> bytes:
        return self.stream.read(min(size_bytes, self.most_bytes))

    def close(self) -> None:
        self.stream.close()


class _NoRuns:
    """What a resolver gets that needs no surrounding runs: any use is an error."""

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        raise AssertionError(_UNDECLARED)

    def after(
        self,
        key: RunKey,  # noqa: ARG002
    ) -> Iterator[tuple[RunKey, DecodedRun]]:
        raise AssertionError(_UNDECLARED)

    def losses(self) -> Sequence[Loss]:
        raise AssertionError(_UNDECLARED)


_UNDECLARED = "a resolver that reads surrounding runs needs `needs_surrounding_runs`"
