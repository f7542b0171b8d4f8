"""Resolve rows that depend on other runs: chunked messages and transactions.

Most runs have no such rows, and pass unchanged.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcache import connector as connectors
from sparkcache.connector import DecodedRun
from sparkcache.model import Loss
from sparkcache_pulsar import parts
from sparkcache_pulsar.chunks import Chunks, MemoryBudget, assemble
from sparkcache_pulsar.faults import DamagedMessageError
from sparkcache_pulsar.isolation import STATE, Isolation, State
from sparkcache_pulsar.message_ids import chunked_message_id
from sparkcache_pulsar.reading import reading
from sparkcache_pulsar.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.arrays import Bools
    from sparkcache.connector import SurroundingRuns
    from sparkcache.model import RunKey

_log = logging.getLogger(__name__)


class Resolver(connectors.Resolver):
    """Resolver of Pulsar's runs; see `sparkcache.connector.Resolver`.

    Args:
        decoding: How the runs were decoded.
        surrounding: The runs around those that the task reads.

    """

    def __init__(self, decoding: str, surrounding: SurroundingRuns) -> None:
        settings = reading(decoding)
        self._values = settings.values
        self._isolation = settings.isolation
        self._chunks = Chunks(surrounding.before, surrounding.losses)
        self._budget = MemoryBudget()
        self._transactions = Transactions(surrounding.after, surrounding.losses)
        self._undecided: list[Loss] = []
        self._has_warned = False

    def __repr__(self) -> str:
        return f"Resolver({self._chunks!r}, {self._transactions!r})"

    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:
        """Return the rows of the next run that the task reads."""
        self._transactions.learn(key, run)
        self._chunks.learn(run.losses)
        if not any(map(parts.has_columns, run.batches)):
            return run
        batches: list[pa.RecordBatch] = []
        losses: list[Loss] = []
        self._budget = MemoryBudget()
        self._undecided = []
        for batch in run.batches:
            batches += self._rows(key, batch, losses)
        self._warn(key)
        all_losses = run.losses + tuple(losses)
        return DecodedRun(batches, all_losses, tuple(self._undecided))

    def _rows(
        self, key: RunKey, batch: pa.RecordBatch, losses: list[Loss]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch; each chunked message in a batch of its own."""
        assembled = dict(self._messages(key, batch, losses))
        chunks = np.flatnonzero(batch.column(parts.CHUNK).is_valid().to_numpy(False))
        states = self._states(key, batch)
        wanted = self._are_wanted(key, batch, states, losses)
        rows = batch.select(range(batch.num_columns - len(parts.COLUMNS)))
        if self._isolation is Isolation.UNCOMMITTED:
            column = rows.schema.get_field_index(STATE.name)
            rows = rows.set_column(column, STATE, states)
        for chunk, next_chunk in pairwise([-1, *chunks.tolist(), len(batch)]):
            if chunk in assembled and wanted[chunk]:
                yield _with_message(rows.slice(chunk, 1), *assembled[chunk])
            between = slice(chunk + 1, next_chunk)
            if wanted[between].any():
                yield rows[between].filter(pa.array(wanted[between]))

    def _messages(
        self, key: RunKey, batch: pa.RecordBatch, losses: list[Loss]
    ) -> Iterator[tuple[int, tuple[bytes, list[pa.Array]]]]:
        """Yield the chunked messages that end in a batch: row, id and value columns."""
        for row, last in parts.chunks_of(batch):
            chunks = self._chunks.add(last)
            if chunks is None:
                continue
            try:
                payload = assemble(last.chunks, chunks, self._budget)
                keys = batch.slice(row, 1).column("__key")
                values = self._values.payload_columns(payload, keys)
            except DamagedMessageError as error:
                location = key.ledger.object.uri, last.offset, last.ledger
                losses.append(Loss(*location, last.entry, last.entry, *error.fault, 1))
            else:
                yield (
                    row,
                    (chunked_message_id(chunks[0].message_id, last.message_id), values),
                )

    def _states(self, key: RunKey, batch: pa.RecordBatch) -> pa.Array:
        """Return the state of each row's transaction; null without one."""
        encoded = batch.column("__txn").dictionary_encode()
        transaction_states = [
            self._transactions.state(transaction, key)
            for transaction in encoded.dictionary.to_pylist()
        ]
        return pa.array(transaction_states, pa.string()).take(encoded.indices)

    def _are_wanted(
        self,
        key: RunKey,
        batch: pa.RecordBatch,
        states: pa.Array,
        losses: list[Loss],
    ) -> Bools:
        """Return which rows may be wanted messages."""
        no_outcome: Bools = batch.column(parts.OUTCOME).is_null().to_numpy(False)
        if self._isolation is Isolation.UNCOMMITTED:
            return no_outcome
        undecided = pc.equal(states, State.UNDECIDED).fill_null(False).to_numpy(False)
        undecided &= no_outcome
        if undecided.any() and (lost := self._transactions.loss_after(key)) is not None:
            found = f"no end, and {lost.entries} are lost"
            losses += _without_end(batch, undecided, key, lost.uri, lost.offset, found)
        elif undecided.any():
            uri, found = key.ledger.object.uri, "no end in any ledger offloaded so far"
            self._undecided += _without_end(batch, undecided, key, uri, 0, found)
        wanted: Bools = (
            pc.equal(states, State.COMMITTED).fill_null(True).to_numpy(False)
        )
        wanted &= no_outcome
        return wanted

    def _warn(self, key: RunKey) -> None:
        """Warn, once, that messages of undecided transactions are left out."""
        if self._undecided and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: left out messages of transactions that are neither committed nor "
                "aborted in any offloaded ledger, from ledger %d on; set the option "
                "isolation=read_uncommitted to read them",
                key.ledger.topic,
                key.ledger.id,
            )


def _without_end(
    batch: pa.RecordBatch, rows: Bools, key: RunKey, uri: str, offset: int, found: str
) -> Iterator[Loss]:
    """Yield losses for the entries of rows whose transaction has no known end."""
    expected = "the end of the transaction of a message"
    for entry in batch.column("__entryId").filter(pa.array(rows)).unique().to_pylist():
        yield Loss(uri, offset, key.ledger.id, entry, entry, expected, found)


def _with_message(
    row: pa.RecordBatch, id_: bytes, values: list[pa.Array]
) -> pa.RecordBatch:
    """Return the row of a chunked message, derived from that of its last chunk."""
    columns = list(row.columns)
    columns[row.schema.get_field_index("__messageId")] = pa.array([id_], pa.binary())
    first = row.schema.get_field_index("value")
    columns[first : first + len(values)] = values
    return pa.RecordBatch.from_arrays(columns, schema=row.schema)
