"""Decode a run of frames into record batches.

    records     -> frames       if frames are not what is stored   unfolding.py
    frames      -> entries      envelope, checksum, metadata       entries.py
    payloads    -> payloads     decrypted, if encrypted            encryption/
    payloads    -> one buffer   decompressed                       payloads.py
    batches     -> messages     a row each, as ranges of buffer    unbatching.py
    ranges      -> columns      gathered by Arrow                  columns.py
    values      -> columns      by their schema, if one is set     values.py
    other rows  -> columns      chunks, ends of transactions       parts.py

An entry with any fault is left out and reported as a loss; see faults.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.model import Loss
from sparkcache_pulsar import codecs, parts
from sparkcache_pulsar.columns import Places, envelope
from sparkcache_pulsar.decoding import form_of
from sparkcache_pulsar.encryption.column import column
from sparkcache_pulsar.encryption.decrypting import decrypt
from sparkcache_pulsar.entries import read_entries
from sparkcache_pulsar.faults import Faults
from sparkcache_pulsar.frames import Walk
from sparkcache_pulsar.isolation import STATE, Isolation
from sparkcache_pulsar.payloads import unpack
from sparkcache_pulsar.reading import reading
from sparkcache_pulsar.sequencefile import Layout
from sparkcache_pulsar.splitting import END
from sparkcache_pulsar.unbatching import find_messages
from sparkcache_pulsar.unfolding import Unfolded, unfold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.arrays import Ints
    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger

_LEAST_GROUP_BYTES = 8 << 20  # each group costs a millisecond or two on top
_MAX_GROUP_BYTES = 1 << 30  # an array's offsets are int32


def decode(ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
    """Decode a run; its losses are those of the raw run and those of the decoding."""
    form = form_of(ledger)
    cut = unfold(form, ledger, raw) if isinstance(form, Layout) else walk(raw)
    faults = Faults(len(cut.starts))
    for entry, fault in cut.faults.items():
        faults.add(entry, *fault)
    batches: list[pa.RecordBatch] = []
    if cut.starts:
        entry_ids = np.arange(len(cut.starts), dtype=np.int64) + raw.run.first
        places = Places(ledger.topic, ledger.id, entry_ids)
        limits = batch_bytes, codecs.run_limit_bytes(len(raw.data))
        for decoded in decoded_groups(places, ledger.decoding, cut, faults, *limits):
            pieces = round(decoded.decoded_bytes / max(1, batch_bytes))
            batches += _pieces(decoded.rows, pieces)
    losses = faults.losses(ledger, raw.run, cut.offsets) + raw.losses
    if cut.end is not None and not raw.losses:
        offset, fault = cut.end
        location = ledger.object.uri, offset, ledger.id
        first = raw.run.first + len(cut.starts)
        losses += (Loss(*location, first, raw.run.last, *fault),)
    return DecodedRun(batches, losses)


class Group(NamedTuple):
    """The rows of some entries.

    Attributes:
        rows: The rows.
        entry: The entry of each, counted from the first one.
        decoded_bytes: Size of the entries' payloads, decompressed.

    """

    rows: pa.RecordBatch
    entry: Ints
    decoded_bytes: int


def decoded_groups(
    places: Places,
    decoding: str,
    cut: Unfolded,
    faults: Faults,
    batch_bytes: int,
    limit_bytes: int,
) -> Iterator[Group]:
    """Yield the rows of the sound entries that were cut out of a run, or several."""
    settings = reading(decoding)
    entries = read_entries(cut.data, cut.starts, faults)
    sealed = decrypt(entries, settings.decryption, faults)
    has_parts, schema = parts.has_parts(entries), settings.schema
    if has_parts:
        schema = pa.schema([*schema, *parts.COLUMNS])
    size_bytes = 0
    group_bytes = min(max(batch_bytes, _LEAST_GROUP_BYTES), _MAX_GROUP_BYTES)
    for lanes in entries.groups(group_bytes):
        if size_bytes > limit_bytes:
            faults.add_all(lanes, *codecs.RUN_TOO_LARGE)
            continue
        payloads = unpack(entries, lanes, faults)
        messages = find_messages(entries, payloads, faults)
        if not len(messages.entry):
            continue
        if has_parts:
            parts.without_values(entries, messages)
        messages, value_columns = settings.values.message_columns(messages, faults)
        if not len(messages.entry):
            continue
        columns = envelope(places, entries, messages)
        if settings.isolation is Isolation.UNCOMMITTED:
            columns.append(pa.nulls(len(messages.entry), STATE.type))
        columns += value_columns
        if settings.decryption.consume:
            columns.append(column(sealed, messages.entry))
        if has_parts:
            columns += parts.columns(entries, messages, cut.offsets)
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        size_bytes += batch.nbytes
        decoded_bytes = int(entries.decoded_bytes[lanes].sum())
        yield Group(batch, messages.entry, decoded_bytes)


def walk(raw: RawRun) -> Unfolded:
    """Find the frames of a run that is stored as frames."""
    steps = Walk(raw.run.first)
    steps.advance(raw.data, raw.run.last, len(raw.data))
    end = None
    if steps.entry <= raw.run.last:
        fault = steps.fault or (f"entry {steps.entry}", END)
        end = raw.offset + steps.offset, fault
    offsets = [raw.offset + start for start in steps.starts]
    return Unfolded(raw.data, steps.starts, offsets, end=end)


def _pieces(batch: pa.RecordBatch, pieces: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into `pieces` of about the same number of rows; at least one."""
    rows = -(-len(batch) // max(1, pieces))
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)
