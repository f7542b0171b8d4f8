"""Topics to read: how to store them, what has to be read, and arbitrary ones."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st

from sparkcache.testing import MemoryStorage, read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import (
    Codec,
    Entry,
    Message,
    ledger_objects,
    varint_field,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOPIC = "persistent://shop/eu/orders"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]

TXN_COMMITTING, TXN_COMMIT, TXN_ABORT = 20, 21, 22


def store(
    entries: Sequence[Entry | bytes],
    *,
    topic: str = TOPIC,
    ledger: int = 7,
    max_block_bytes: int = 64 << 20,
    storage: MemoryStorage | None = None,
    seed: int = 0,
) -> MemoryStorage:
    """Offload entries as one ledger, to a bucket in memory."""
    storage = storage or MemoryStorage()
    encoded = [e if isinstance(e, bytes) else e.encode() for e in entries]
    for stored_object in ledger_objects(
        topic, ledger, encoded, max_block_bytes=max_block_bytes, seed=seed
    ):
        storage.put(stored_object.key, stored_object.data, stored_object.metadata)
    return storage


def expected_rows(
    entries: Sequence[Entry],
    *,
    topic: str = TOPIC,
    ledger: int = 7,
    all_states: bool = False,
) -> list[Row]:
    """Say one by one, from what was written, what has to be read."""
    rows = []
    committed = {entry.txn for entry in entries if entry.marker == TXN_COMMIT} | {None}
    for entry_id, entry in enumerate(entries):
        is_wanted = all_states or entry.txn in committed
        if entry.marker is not None or not is_wanted:
            continue
        for index, message in enumerate(entry.messages):
            if not message.compacted_out:
                rows.append(_row(topic, ledger, entry_id, entry, index, message))
    return rows


def _row(
    topic: str, ledger: int, entry_id: int, entry: Entry, index: int, message: Message
) -> Row:
    size = len(entry.messages)
    last = index if entry.batched else size - 1
    key = message.key.encode() if isinstance(message.key, str) else message.key
    sequence_id = message.sequence_id
    if sequence_id is None:
        sequence_id = entry.sequence_id if entry.batched else 0
    partition = topic.rpartition("-partition-")[2]
    message_id = varint_field(1, ledger) + varint_field(2, entry_id)
    if partition.isdecimal():
        message_id += varint_field(3, int(partition))
    if entry.batched:
        message_id += varint_field(4, index)
    message_id += varint_field(6, size if entry.batched else 0)
    return {
        "__topic": topic,
        "__partition": int(partition) if partition.isdecimal() else None,
        "__ledgerId": ledger,
        "__entryId": entry_id,
        "__batchIndex": index if entry.batched else None,
        "__messageId": message_id,
        "__publishTime": at_ms(entry.publish_time_ms),
        "__eventTime": at_ms(message.event_time_ms) if message.event_time_ms else None,
        "__brokerPublishTime": at_ms(entry.broker[0]) if entry.broker else None,
        "__index": entry.broker[1] - (size - 1) + last if entry.broker else None,
        "__key": None if message.null_key else key,
        "__orderingKey": message.ordering_key,
        "__sequenceId": sequence_id,
        "__producerName": entry.producer_name,
        "__properties": dict(message.properties),
        "__schemaVersion": entry.schema_version or None,
        "__txn": f"({entry.txn[0]},{entry.txn[1]})" if entry.txn else None,
        "__replicatedFrom": entry.replicated_from,
        "__deliverAt": None
        if entry.deliver_at_ms is None
        else at_ms(entry.deliver_at_ms),
        "value": message.value,
    }


def at_ms(millis: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=millis)


times_ms = st.integers(0, 4_000_000_000_000)
int64s = st.integers(-(2**63), 2**63 - 1)
short_binary = st.binary(max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)

messages = st.builds(
    Message,
    value=st.none() | st.binary(max_size=300),
    key=st.none() | names | short_binary,
    null_key=st.booleans(),
    ordering_key=st.none() | short_binary,
    properties=st.lists(st.tuples(names, names), max_size=4).map(tuple),
    event_time_ms=st.none() | times_ms,
    sequence_id=st.none() | int64s,
)
in_batch = st.builds(
    lambda message, gone: Message(compacted_out=True) if gone else message,
    messages,
    st.sampled_from([False] * 9 + [True]),
)
_common = {
    "codec": st.sampled_from(Codec),
    "publish_time_ms": times_ms,
    "producer_name": names,
    "sequence_id": int64s,
    "broker": st.none() | st.tuples(times_ms, st.integers(1000, 2**60)),
    "checksum": st.booleans(),
    "schema_version": st.none() | short_binary,
    "replicated_from": st.none() | names,
    "deliver_at_ms": st.none() | times_ms,
    "marker": st.sampled_from([None] * 9 + [10, TXN_COMMITTING]),
}
_transactions = st.sampled_from([(0, 1), (0, 2), (-1, -(2**63))])
_in_transactions = st.none() | _transactions
batches = st.builds(
    Entry,
    st.lists(in_batch, max_size=8).map(tuple),
    st.just(True),
    txn=_in_transactions,
    **_common,
)
singles = st.builds(
    Entry, st.tuples(messages), st.just(False), txn=_in_transactions, **_common
)
outcomes = st.builds(
    Entry,
    st.just((Message(),)),
    st.just(False),
    txn=_transactions,
    marker=st.sampled_from([TXN_COMMIT, TXN_ABORT]),
)
entries = st.one_of(batches, singles, batches, singles, outcomes)


def ended_once(written: list[Entry]) -> bool:
    """Return whether no transaction ends twice, nor goes on after its end."""
    ended = set()
    for entry in written:
        if entry.txn in ended:
            return False
        if entry.marker in (TXN_COMMIT, TXN_ABORT):
            ended.add(entry.txn)
    return True


def read_values(
    payloads: Sequence[bytes | None], options: Mapping[str, str]
) -> list[Any]:
    """Write values to a topic and read them back, of which none may be lost."""
    written = [Entry(tuple(Message(payload) for payload in payloads))]
    rows, losses = read_topic(PulsarConnector(), store(written), TOPIC, options)
    assert not losses
    return [row["value"] for row in rows]
