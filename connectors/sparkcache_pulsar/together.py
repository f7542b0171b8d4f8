"""Decode small runs of several ledgers at once, as if they were one run.

What decoding costs besides its bytes, a millisecond or two, is then spent once. Runs
with any fault, and with rows that depend on other runs, are left to `decode`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.connector import DecodedRun
from sparkcache_pulsar import codecs, parts
from sparkcache_pulsar.columns import Places
from sparkcache_pulsar.decode import decode, decoded_groups, walk
from sparkcache_pulsar.decoding import form_of
from sparkcache_pulsar.faults import Faults
from sparkcache_pulsar.sequencefile import Layout
from sparkcache_pulsar.unfolding import Unfolded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from sparkcache.connector import RawRun
    from sparkcache.model import Ledger


def decode_all(
    runs: Sequence[tuple[Ledger, RawRun]], batch_bytes: int
) -> list[DecodedRun]:
    """Decode runs of one topic, with one decoding; see `Connector.decode_all`."""
    together = _decode_together(runs, batch_bytes) if len(runs) > 1 else None
    return together or [decode(ledger, raw, batch_bytes) for ledger, raw in runs]


def _decode_together(
    runs: Sequence[tuple[Ledger, RawRun]], batch_bytes: int
) -> list[DecodedRun] | None:
    """Return the runs; None if any has a fault, or rows that depend on other runs."""
    if any(raw.losses or isinstance(form_of(ledger), Layout) for ledger, raw in runs):
        return None
    cuts = [walk(raw) for _, raw in runs]
    if any(cut.end is not None for cut in cuts):
        return None
    first, _ = runs[0]
    whole, faults = _joined(cuts), Faults(sum(len(cut.starts) for cut in cuts))
    decoded = [DecodedRun([], ()) for _ in runs]
    begins = np.cumsum([0, *(len(cut.starts) for cut in cuts)])
    places = _places(runs, cuts)
    limits = batch_bytes, codecs.run_limit_bytes(len(whole.data))
    for group in decoded_groups(places, first.decoding, whole, faults, *limits):
        if parts.CHUNK in group.rows.schema.names:
            return None
        _divide(group.rows, np.searchsorted(group.entry, begins).tolist(), decoded)
    return decoded if faults.sound.all() else None


def _joined(cuts: Sequence[Unfolded]) -> Unfolded:
    """Return the frames of all runs as those of one."""
    starts: list[int] = []
    offsets: list[int] = []
    size_bytes = 0
    for cut in cuts:
        starts += [size_bytes + start for start in cut.starts]
        offsets += cut.offsets
        size_bytes += len(cut.data)
    return Unfolded(b"".join(cut.data for cut in cuts), starts, offsets)


def _places(runs: Sequence[tuple[Ledger, RawRun]], cuts: Sequence[Unfolded]) -> Places:
    counts = [len(cut.starts) for cut in cuts]
    ledgers = np.repeat([ledger.id for ledger, _ in runs], counts)
    entries = [
        np.arange(count, dtype=np.int64) + raw.run.first
        for (_, raw), count in zip(runs, counts, strict=True)
    ]
    return Places(runs[0][0].topic, ledgers, np.concatenate(entries))


def _divide(
    rows: pa.RecordBatch, begins: list[int], decoded: Sequence[DecodedRun]
) -> None:
    """Add to each run its part of some rows."""
    for run, (begin, end) in zip(decoded, pairwise(begins), strict=True):
        if begin < end:
            run.batches.append(rows.slice(begin, end - begin))
