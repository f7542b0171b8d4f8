"""Chunked messages and transactions in one topic, however it is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import hypothesis.strategies as st
from hypothesis import given, settings

from sparkcache.testing import MemoryStorage
from sparkcache_pulsar.testing import Codec
from tests.effort import tries

from .resolving import marker, read, single, values
from .topics import TXN_ABORT, TXN_COMMIT, store


@st.composite
def topics(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """Draw what producers send, interleaved, and the values that are to be read."""
    sent: list[list[tuple[bytes, bytes | None]]] = []
    ends = {txn: draw(st.sampled_from([None, TXN_COMMIT, TXN_ABORT])) for txn in (1, 2)}
    for producer in range(draw(st.integers(1, 4))):
        mine: list[tuple[bytes, bytes | None]] = []
        for number in range(draw(st.integers(0, 4))):
            value = bytes([producer, number]) * draw(st.integers(1, 40))
            txn = draw(st.sampled_from([None, None, 1, 2]))
            entry = single(value, codec=draw(st.sampled_from(Codec)))
            is_read = True
            if txn:
                entry = replace(entry, txn=(0, txn))
                is_read = ends[txn] == TXN_COMMIT
            size = draw(st.integers(1, 60))
            encoded = entry.encode_chunks(size, f"{producer}:{number}")
            if len(encoded) == 1:
                encoded = [entry.encode()]
            mine += [(chunk, None) for chunk in encoded[:-1]]
            mine.append((encoded[-1], value if is_read else None))
        sent.append(mine)
    order = draw(st.permutations([n for n, mine in enumerate(sent) for _ in mine]))
    merged = [sent[producer].pop(0) for producer in order]
    merged += [
        (marker((0, txn), kind).encode(), None) for txn, kind in ends.items() if kind
    ]
    return [entry for entry, _ in merged], [value for _, value in merged if value]


@settings(max_examples=tries(75))
@given(topics(), st.integers(1, 6), st.integers(1, 500), st.data())
def test_however_a_topic_is_cut(
    topic: tuple[list[bytes], list[bytes]],
    parts: int,
    run_bytes: int,
    data: st.DataObject,
) -> None:
    written, expected = topic
    storage = MemoryStorage()
    start = 0
    sizes = data.draw(st.lists(st.integers(1, 10), min_size=1, max_size=4))
    for ledger, stop in enumerate(accumulate([*sizes, len(written)])):
        if written[start:stop]:
            store(written[start:stop], ledger=ledger, storage=storage)
        start = stop
    if not written:
        return
    rows, losses = read(storage, run_bytes=run_bytes, parts=parts)
    assert not losses
    assert values(rows) == expected
    places = [(row["__ledgerId"], row["__entryId"]) for row in rows]
    assert places == sorted(places)
