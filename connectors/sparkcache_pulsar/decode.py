"""A run of frames becomes record batches.

    records     -> frames       where they are not stored as such  unfolding.py
    frames      -> entries      envelope, checksum, metadata       entries.py
    payloads    -> payloads     decrypted, if they have to be      encryption/
    payloads    -> one buffer   decompressed                       payloads.py
    batches     -> messages     a row each, as places in it        unbatching.py
    places      -> columns      copied together by Arrow           columns.py
    values      -> columns      by their schema, if one is given   values.py
    other rows  -> columns      chunks, ends of transactions       parts.py

Whatever is wrong with an entry takes that entry out, and is told; see faults.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.model import Loss
from sparkcache_pulsar import codecs, parts
from sparkcache_pulsar.columns import envelope
from sparkcache_pulsar.encryption.column import column
from sparkcache_pulsar.encryption.decrypting import decrypt
from sparkcache_pulsar.entries import read_entries
from sparkcache_pulsar.faults import Faults
from sparkcache_pulsar.forms import form_of, without_form
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

    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger

_LEAST_GROUP_BYTES = 8 << 20  # each group costs a millisecond or two on top
_MAX_GROUP_BYTES = 1 << 30  # an array's offsets are int32


def decode(ledger: Ledger, raw: RawRun, batch_bytes: int) -> DecodedRun:
    """Decode a run; its losses are those of the raw run and what is found here."""
    layout = Layout.parse(form_of(ledger))
    cut = _walk(raw) if layout is None else unfold(layout, ledger, raw)
    faults = Faults(len(cut.starts))
    for entry, fault in cut.faults.items():
        faults.add(entry, *fault)
    batches = list(_batches(ledger, raw, cut, faults, batch_bytes))
    losses = faults.losses(ledger, raw.run, cut.offsets) + raw.losses
    if cut.end is not None and not raw.losses:
        offset, fault = cut.end
        place = ledger.object.uri, offset, ledger.id
        first = raw.run.first + len(cut.starts)
        losses += (Loss(*place, first, raw.run.last, *fault),)
    return DecodedRun(batches, losses)


def _batches(
    ledger: Ledger, raw: RawRun, cut: Unfolded, faults: Faults, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the entries that were cut out, as far as they are sound."""
    if not cut.starts:
        return
    how = reading(without_form(ledger.decoding))
    entries = read_entries(cut.data, cut.starts, faults)
    sealed = decrypt(entries, how.decryption, faults)
    depends, schema = parts.has_parts(entries), how.schema
    if depends:
        schema = pa.schema([*schema, *parts.COLUMNS])
    size_bytes, most_bytes = 0, codecs.most_of_run(len(raw.data))
    group_bytes = min(max(batch_bytes, _LEAST_GROUP_BYTES), _MAX_GROUP_BYTES)
    for lanes in entries.groups(group_bytes):
        if size_bytes > most_bytes:
            faults.add_all(lanes, *codecs.TOO_MUCH)
            continue
        payloads = unpack(entries, lanes, faults)
        messages = find_messages(entries, payloads, faults)
        if not len(messages.entry):
            continue
        if depends:
            parts.without_values(entries, messages)
        messages, of_values = how.values.of(messages, faults)
        if not len(messages.entry):
            continue
        columns = envelope(ledger, raw.run.first, entries, messages)
        if how.isolation is Isolation.UNCOMMITTED:
            columns.append(pa.nulls(len(messages.entry), STATE.type))
        columns += of_values
        if how.decryption.consume:
            columns.append(column(sealed, messages.entry))
        if depends:
            columns += parts.columns(entries, messages, cut.offsets)
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        size_bytes += batch.nbytes
        decoded_bytes = int(entries.decoded_bytes[lanes].sum())
        yield from _pieces(batch, round(decoded_bytes / max(1, batch_bytes)))


def _walk(raw: RawRun) -> Unfolded:
    """Find the frames of a run that was stored as such."""
    walk = Walk(raw.run.first)
    walk.advance(raw.data, raw.run.last, len(raw.data))
    end = None
    if walk.entry <= raw.run.last:
        fault = walk.fault or (f"entry {walk.entry}", END)
        end = raw.offset + walk.at, fault
    offsets = [raw.offset + start for start in walk.starts]
    return Unfolded(raw.data, walk.starts, offsets, end=end)


def _pieces(batch: pa.RecordBatch, pieces: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into that many of about the same number of rows, or into one."""
    rows = -(-len(batch) // max(1, pieces))
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)
