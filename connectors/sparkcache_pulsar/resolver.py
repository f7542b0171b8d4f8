"""Makes rows of what depends on other runs: chunked messages, transactions.

Most runs have nothing of the kind, and are passed on as they are.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.connector import DecodedRun
from sparkcache.model import Loss
from sparkcache_pulsar import parts
from sparkcache_pulsar.chunks import Chunks, Room, put_together
from sparkcache_pulsar.faults import DamagedMessageError
from sparkcache_pulsar.isolation import STATE, Isolation, State
from sparkcache_pulsar.message_ids import chunked
from sparkcache_pulsar.reading import reading
from sparkcache_pulsar.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.arrays import Bools
    from sparkcache.connector import SurroundingRuns
    from sparkcache.model import RunKey

_log = logging.getLogger(__name__)


class Resolver:
    """See `sparkcache.connector.Resolver`.

    Args:
        decoding: How the runs were decoded.
        neighbours: The runs around them.

    """

    def __init__(self, decoding: str, surrounding: SurroundingRuns) -> None:
        how = reading(decoding)
        self._values = how.values
        self._isolation = how.isolation
        self._chunks = Chunks(surrounding.before)
        self._room = Room()
        self._transactions = Transactions(surrounding.after)
        self._undecided: list[Loss] = []
        self._has_warned = False

    def __repr__(self) -> str:
        return f"Resolver({self._chunks!r}, {self._transactions!r})"

    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:
        """Return the rows of a run, the next one that the task reads."""
        self._transactions.learn(key, run)
        if not any(map(parts.has_columns, run.batches)):
            return run
        batches: list[pa.RecordBatch] = []
        losses: list[Loss] = []
        self._room = Room()
        self._undecided = []
        for batch in run.batches:
            batches += self._rows(key, batch, losses)
        self._warn(key)
        all_losses = run.losses + tuple(losses)
        return DecodedRun(batches, all_losses, tuple(self._undecided))

    def _rows(
        self, key: RunKey, batch: pa.RecordBatch, losses: list[Loss]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch, those of chunked messages in batches of one."""
        whole = dict(self._messages(key, batch, losses))
        chunks = np.flatnonzero(batch.column(parts.CHUNK).is_valid().to_numpy(False))
        states = self._states(key, batch)
        wanted = self._are_wanted(key, batch, states, losses)
        rows = batch.select(range(batch.num_columns - len(parts.COLUMNS)))
        if self._isolation is Isolation.UNCOMMITTED:
            place = rows.schema.get_field_index(STATE.name)
            rows = rows.set_column(place, STATE, states)
        for before, behind in pairwise([-1, *chunks.tolist(), len(batch)]):
            if before in whole and wanted[before]:
                yield _with_message(rows.slice(before, 1), *whole[before])
            between = slice(before + 1, behind)
            if wanted[between].any():
                yield rows[between].filter(pa.array(wanted[between]))

    def _messages(
        self, key: RunKey, batch: pa.RecordBatch, losses: list[Loss]
    ) -> Iterator[tuple[int, tuple[bytes, list[pa.Array]]]]:
        """Yield the chunked messages that end in a batch: row, id and values."""
        for row, last in parts.chunks_of(batch):
            chunks = self._chunks.add(last)
            if chunks is None:
                continue
            try:
                payload = put_together(last.chunks, chunks, self._room)
                keys = batch.slice(row, 1).column("__key")
                found = self._values.of_payload(payload, keys)
            except DamagedMessageError as error:
                place = key.ledger.object.uri, last.offset, last.ledger
                losses.append(Loss(*place, last.entry, last.entry, *error.fault))
            else:
                yield row, (chunked(chunks[0].message_id, last.message_id), found)

    def _states(self, key: RunKey, batch: pa.RecordBatch) -> pa.Array:
        """Return the state of each row's transaction; null without one."""
        encoded = batch.column("__txn").dictionary_encode()
        of_each = [
            self._transactions.state(transaction, key)
            for transaction in encoded.dictionary.to_pylist()
        ]
        return pa.array(of_each, pa.string()).take(encoded.indices)

    def _are_wanted(
        self,
        key: RunKey,
        batch: pa.RecordBatch,
        states: pa.Array,
        losses: list[Loss],
    ) -> Bools:
        """Tell which rows may be messages that are wanted."""
        no_outcome: Bools = batch.column(parts.OUTCOME).is_null().to_numpy(False)
        if self._isolation is Isolation.UNCOMMITTED:
            return no_outcome
        left = pc.equal(states, State.UNDECIDED).fill_null(False).to_numpy(False)
        left &= no_outcome
        if left.any() and (lost := self._transactions.lost_behind(key)) is not None:
            found = (
                f"none, where entries {lost.ledger}:{lost.first}-{lost.last} are lost"
            )
            losses += _without_end(batch, left, key, lost.uri, lost.offset, found)
        elif left.any():
            uri, found = key.ledger.object.uri, "none in any ledger that is here yet"
            self._undecided += _without_end(batch, left, key, uri, 0, found)
        wanted: Bools = (
            pc.equal(states, State.COMMITTED).fill_null(True).to_numpy(False)
        )
        wanted &= no_outcome
        return wanted

    def _warn(self, key: RunKey) -> None:
        """Tell, once, that messages are held back."""
        if self._undecided and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: messages of transactions that are neither committed nor aborted "
                "in any ledger that is here were left out, from ledger %d on; the "
                "option isolation=read_uncommitted shows them",
                key.ledger.topic,
                key.ledger.id,
            )


def _without_end(
    batch: pa.RecordBatch, rows: Bools, key: RunKey, uri: str, offset: int, found: str
) -> Iterator[Loss]:
    """Yield the entries of rows of transactions whose end is not known."""
    expected = "the end of the transaction of a message"
    for entry in batch.column("__entryId").filter(pa.array(rows)).unique().to_pylist():
        yield Loss(uri, offset, key.ledger.id, entry, entry, expected, found)


def _with_message(
    row: pa.RecordBatch, id_: bytes, found: list[pa.Array]
) -> pa.RecordBatch:
    """Return the row of a chunked message, made of that of its last chunk."""
    columns = list(row.columns)
    columns[row.schema.get_field_index("__messageId")] = pa.array([id_], pa.binary())
    at = row.schema.get_field_index("value")
    columns[at : at + len(found)] = found
    return pa.RecordBatch.from_arrays(columns, schema=row.schema)
