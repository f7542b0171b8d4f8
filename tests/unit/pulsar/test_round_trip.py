"""Whatever is written is read, whatever is damaged is reported."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sparkcache.errors import SourceError
from sparkcache.testing import MemoryStorage, discover, read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, ledger_objects
from tests.effort import tries

from .topics import (
    TOPIC,
    batches,
    ended_once,
    entries,
    expected_rows,
    singles,
    store,
)

CONNECTOR = PulsarConnector()

topics = st.one_of(
    st.lists(entries, min_size=1, max_size=12).filter(ended_once),
    st.lists(batches, min_size=1, max_size=5),
    st.lists(singles, min_size=1, max_size=12),
)
sizes = st.integers(1, 3_000) | st.just(1 << 20)


def block_bytes(written: list[Entry], more: int) -> int:
    """Return a block size that every entry fits into."""
    return 140 + max(len(entry.encode()) for entry in written) + more


@settings(max_examples=tries(75))
@given(topics, sizes, sizes, sizes, st.integers(1, 1000))
def test_what_is_written_is_read(
    written: list[Entry], more: int, run_bytes: int, batch_bytes: int, chunk_bytes: int
) -> None:
    storage = store(written, max_block_bytes=block_bytes(written, more))
    storage.chunk_bytes = chunk_bytes
    rows, losses = read_topic(
        CONNECTOR, storage, TOPIC, run_bytes=run_bytes, batch_bytes=batch_bytes
    )
    assert not losses
    assert rows == expected_rows(written)


@given(topics, sizes, sizes, st.data())
def test_any_run_can_be_loaded_alone(
    written: list[Entry], more: int, run_bytes: int, data: st.DataObject
) -> None:
    storage = store(written, max_block_bytes=block_bytes(written, more))
    (found,) = discover(CONNECTOR, storage, TOPIC, {}).ledgers
    extent = data.draw(st.sampled_from(found.extents))
    runs = CONNECTOR.runs(extent, run_bytes)
    stream = storage.open(found.ledger.object, extent.offset, extent.size_bytes)
    whole = list(CONNECTOR.split(found.ledger, extent, runs, stream))
    first = data.draw(st.integers(0, len(runs) - 1))
    stop = data.draw(st.integers(first + 1, len(runs)))
    offset = whole[first].offset
    size = extent.offset + extent.size_bytes - offset
    stream = storage.open(found.ledger.object, offset, size)
    part = list(CONNECTOR.split(found.ledger, extent, runs[first:stop], stream))
    assert part == whole[first:stop]


@settings(max_examples=tries(75))
@given(topics, sizes, sizes, st.data())
def test_damage_is_reported(
    written: list[Entry], more: int, run_bytes: int, data: st.DataObject
) -> None:
    """Every row that is read was written; all others are in entries reported as lost.

    Only entries with a checksum: in the others a changed letter goes unnoticed.
    """
    encoded = [entry.encode() for entry in written]
    size = block_bytes(written, more)
    stored, index = ledger_objects(TOPIC, 7, encoded, max_block_bytes=size)
    damaged = bytearray(stored.data)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= data.draw(st.integers(1, 255))
    storage = MemoryStorage()
    storage.put(stored.key, bytes(damaged), stored.metadata)
    storage.put(index.key, index.data, index.metadata)
    options = {"isolation": "read_uncommitted"}
    rows, losses = read_topic(CONNECTOR, storage, TOPIC, options, run_bytes=run_bytes)
    for row in rows:
        del row["__txnState"]  # depends on whether a later entry was lost
    lost = {entry for loss in losses for entry in range(loss.first, loss.last + 1)}
    assert lost <= set(range(len(written)))
    assert not lost & {row["__entryId"] for row in rows}
    checked = {
        n for n, entry in enumerate(written) if entry.checksum and not entry.broker
    }
    assert [row for row in rows if row["__entryId"] in checked] == [
        row
        for row in expected_rows(written, all_states=True)
        if row["__entryId"] in checked - lost
    ]


@given(topics, sizes, st.data())
def test_short_data_is_refused_at_once(
    written: list[Entry], more: int, data: st.DataObject
) -> None:
    encoded = [entry.encode() for entry in written]
    size = block_bytes(written, more)
    stored, index = ledger_objects(TOPIC, 7, encoded, max_block_bytes=size)
    storage = MemoryStorage()
    cut = data.draw(st.integers(0, len(stored.data) - 1))
    storage.put(stored.key, stored.data[:cut], stored.metadata)
    storage.put(index.key, index.data, index.metadata)
    with pytest.raises(SourceError) as error:
        discover(CONNECTOR, storage, TOPIC, {})
    assert error.value.offset == cut
    assert error.value.found == f"{cut} bytes"


@settings(max_examples=tries(50))
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=10), sizes)
def test_arbitrary_entries_do_no_harm(written: list[bytes], run_bytes: int) -> None:
    rows, losses = read_topic(CONNECTOR, store(written), TOPIC, run_bytes=run_bytes)
    found = {row["__entryId"] for row in rows}
    lost = {entry for loss in losses for entry in range(loss.first, loss.last + 1)}
    assert not found & lost
    assert found | lost <= set(range(len(written)))


@settings(max_examples=tries(50))
@given(st.lists(entries, min_size=1, max_size=5), st.data())
def test_damaged_entries_without_checksums_do_no_harm(
    written: list[Entry], data: st.DataObject
) -> None:
    """Where nothing shows that bytes were changed, all that is read may be wrong."""
    encoded = []
    for entry in written:
        changed = bytearray(entry.encode())
        if changed[:2] == b"\x0e\x01":
            del changed[:6]
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] ^= data.draw(st.integers(1, 255))
        encoded.append(bytes(changed))
    rows, losses = read_topic(CONNECTOR, store(encoded), TOPIC)
    found = {row["__entryId"] for row in rows}
    lost = {entry for loss in losses for entry in range(loss.first, loss.last + 1)}
    assert not found & lost
