"""Damages topics at random, and says what may become of them.

`check` reads a topic that `damage` has changed, and raises AssertionError unless

    every entry that was written comes with its rows or is reported as lost, never both;
    one whose bytes were changed has the rows that these bytes mean, by `reference`;
    only entries are lost that the change could reach;
    or all is refused by an error that names the object, and where in it;
    in time, and in memory.

What no reader can know is not required. Entries without a checksum, and all that a
broker puts in front of it, are whatever their bytes say. An index has no checksum, so
what it says wrongly may cost entries, or add some; both are reported.
An index that cannot be read does not say how many entries are lost with it, unless a
manifest does; then the loss has no end. That of a segment does not even say of which
ledgers, and without a manifest it may be wrong about how many entries a ledger has.

Losses are counted, too: entries that came and entries of losses are together as many as
were written. So a loss that says too little fails, as does one that says too much.
"""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa

from sparkcache.connector import RawRun
from sparkcache.errors import ConfigError, SourceError
from sparkcache.model import Ledger, Loss, Run
from sparkcache.testing import MemoryStorage, as_dicts, discover
from sparkcache_pulsar import PulsarConnector, codecs, hadoop_codecs
from sparkcache_pulsar.parts import COLUMNS
from sparkcache_pulsar.uploads import NO_LEDGER

from .damage import CAP_BYTES, Case, Damaged, damage
from .fuzz_topics import (
    COUNTS,
    LAYOUTS,
    sources,
    written,
)
from .reference import Row, decode_entry
from .topics import TOPIC

MOST_BYTES = 80 << 20
"""What reading a damaged topic may take beside what is there already."""
MOST_S = 5.0

_CONNECTOR = PulsarConnector()
_LENIENT = {"failOnDataLoss": "false"}


@dataclass
class Found:
    """What was read: rows and losses of each entry; or why nothing was."""

    rows: dict[tuple[int, int], list[Row]] = field(default_factory=dict)
    lost: set[tuple[int, int]] = field(default_factory=set)
    losses: list[Loss] = field(default_factory=list)
    refusal: SourceError | None = None
    error: SourceError | ConfigError | None = None

    def signature(self) -> set[str]:
        """Return which kinds of losses and errors there are."""
        texts = {f"{loss.expected}, {loss.found}" for loss in self.losses}
        if self.error is not None:
            texts.add(f"{type(self.error).__name__} {self.error}")
        return {re.sub(r"0x\w+|[0-9a-f-]{36}|'.*'|-?\d+", "#", text) for text in texts}


def read(damaged: Damaged, case: Case) -> Found:
    """Read a damaged topic through the connector."""
    storage = MemoryStorage(chunk_bytes=random.Random(str(case)).choice([7, 1 << 20]))
    for name, stored in damaged.objects.items():
        storage.put(name, stored.data, stored.metadata, modified_ms=0)
    run_bytes = random.Random(str(case)).choice([1, *[500] * 2, *[1 << 20] * 9])
    found = Found()
    options = {**LAYOUTS[case.layout].options, **_LENIENT}
    try:
        snapshot = discover(_CONNECTOR, storage, TOPIC, options)
        found.losses += snapshot.losses
        if snapshot.losses:
            found.refusal = _refusal(storage, LAYOUTS[case.layout].options)
        for ledger_map in snapshot.ledgers:
            ledger = ledger_map.ledger
            for extent in ledger_map.extents:
                runs = _CONNECTOR.runs(extent, run_bytes)
                stream = storage.open(ledger.object, extent.offset, extent.size_bytes)
                for raw in _CONNECTOR.split(ledger, extent, runs, stream):
                    found.losses += _add_run(found, ledger, raw)
    except (SourceError, ConfigError) as error:
        found.error = error
    for loss in found.losses:
        # A loss without an end reaches beyond all entries here.
        for entry in range(loss.first, min(loss.last, loss.first + 10_000) + 1):
            place = loss.ledger, entry
            assert place not in found.lost or place not in damaged.entries, (
                f"{place} is lost twice"
            )
            found.lost.add(place)
    return found


_TIMES = ("__publishTime", "__eventTime", "__brokerPublishTime", "__deliverAt")
_CONSTANT = ("__topic", "__partition", "__ledgerId", "__entryId")


def _refusal(storage: MemoryStorage, options: Mapping[str, str]) -> SourceError | None:
    """Return the error for a reader that wants everything or nothing."""
    try:
        discover(_CONNECTOR, storage, TOPIC, options)
    except SourceError as error:
        return error
    return None


_decoded: dict[object, Mapping[int, list[Row]]] = {}
"""What runs without losses became, as most runs of most cases are the same."""


def _add_run(found: Found, ledger: Ledger, raw: RawRun) -> tuple[Loss, ...]:
    key = ledger.id, ledger.decoding, raw.run, bytes(raw.data), raw.losses
    losses: tuple[Loss, ...] = ()
    rows = _decoded.get(key)
    if rows is None:
        decoded = _CONNECTOR.decode(ledger, raw, 10_000)
        rows, losses = _rows(ledger.id, raw.run, decoded.batches), decoded.losses
        if not losses and len(_decoded) < 1000 and len(raw.data) < 10_000:
            _decoded[key] = rows
    for entry, of_entry in rows.items():
        assert (ledger.id, entry) not in found.rows, f"{entry} comes twice"
        found.rows[ledger.id, entry] = of_entry
    return losses


def _rows(
    ledger: int, run: Run, batches: Sequence[pa.RecordBatch]
) -> Mapping[int, list[Row]]:
    before = run.first
    found: dict[int, list[Row]] = {}
    for batch in batches:
        batch.validate(full=True)
        table = pa.Table.from_batches([batch])
        for name in _TIMES:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table[name].cast(pa.int64()))
        for row in as_dicts(table):
            is_part = [row.pop(field.name, None) is not None for field in COLUMNS]
            if any(is_part):
                continue
            same = [row.pop(name) for name in _CONSTANT]
            entry = same[-1]
            assert same == [TOPIC, None, ledger, entry]
            assert before <= entry <= run.last, "entries are not in order"
            before = entry
            found.setdefault(entry, []).append(row)
    return found


@cache
def _rows_written(place: tuple[int, int]) -> list[Row]:
    rows = decode_entry(written()[place], *place)
    assert rows is not None
    return rows


def judge(damaged: Damaged, found: Found, layout: str) -> None:
    """Raise AssertionError unless every entry is accounted for."""
    if found.error is not None:
        assert damaged.harmed, f"refused: {found.error}"
        if isinstance(found.error, SourceError):
            assert found.error.offset is not None, f"it names no place: {found.error}"
        assert "listed" not in layout or isinstance(found.error, ConfigError)
        return
    if found.refusal is not None:
        is_named = found.refusal.offset is not None
        is_of_all = re.search(r"no (such )?(object|offsets)|format", str(found.refusal))
        assert is_named or is_of_all, f"it names no place: {found.refusal}"
    both = found.lost & found.rows.keys()
    assert not both, f"lost and delivered: {both}"
    invented = found.rows.keys() - damaged.entries.keys()
    assert not invented, f"never written: {invented}"
    for ledger in COUNTS:
        _judge_count(damaged, found, ledger)
    for place in damaged.entries:
        _judge_entry(damaged, found, place)


def _judge_count(damaged: Damaged, found: Found, ledger: int) -> None:
    """Raise AssertionError unless losses say how many entries did not come."""
    places = [place for place in damaged.entries if place[0] == ledger]
    if any(
        place in damaged.free or _is_given_up(damaged, found, place) for place in places
    ):
        return
    came = [
        place
        for place in places
        if place in found.rows
        or (place not in found.lost and [] in _allowed(damaged, place))
    ]
    losses = [loss for loss in found.losses if loss.ledger == ledger]
    lost = sum(loss.last - loss.first + 1 for loss in losses)
    text = f"{len(came)} of {len(places)} entries of {ledger} came, {lost} are lost"
    assert len(came) + lost >= len(places), f"{text}: {losses}"
    if ledger not in damaged.vague:
        assert len(came) + lost == len(places), f"{text}: {losses}"


def _allowed(damaged: Damaged, place: tuple[int, int]) -> list[list[Row] | None]:
    """Return what may come of an entry; None if it may be lost."""
    allowed: list[list[Row] | None] = []
    if place in damaged.changed:
        data = damaged.changed[place]
        allowed.append(None if data is None else decode_entry(data, *place))
    if place in damaged.harmed:
        allowed.append(None)
    if place not in damaged.changed or place in damaged.harmed:
        allowed.append(_rows_written(place))
    return allowed


def _judge_entry(damaged: Damaged, found: Found, place: tuple[int, int]) -> None:
    rows = found.rows.get(place, [])
    allowed = _allowed(damaged, place)
    got = None if place in found.lost or _is_given_up(damaged, found, place) else rows
    if place in damaged.free and got is not None:
        entry = sources()[place]
        if not entry.checksum or entry.broker is not None:
            return
    if got in allowed or (got is None and not rows and None in allowed):
        return
    why = [loss for loss in found.losses if loss.first <= place[1] <= loss.last]
    raise AssertionError(f"entry {place}: {got}\n  is none of {allowed}\n  {why}")


def _is_given_up(damaged: Damaged, found: Found, place: tuple[int, int]) -> bool:
    """Return whether an entry may be lost without a loss of its ledger."""
    if place[0] not in damaged.vague or place in found.rows:
        return False
    is_unknown = any(loss.ledger == NO_LEDGER for loss in found.losses)
    return is_unknown or place in damaged.untold


# Bounds, and many cases.


class TooLongError(AssertionError):
    """A case takes longer than it may."""


@contextmanager
def bounded() -> Iterator[None]:
    """Lower the caps of codecs, and raise TooLongError after a while."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"more than {MOST_S} s")

    caps = codecs.MAX_PAYLOAD_BYTES, hadoop_codecs.MAX_BYTES
    codecs.MAX_PAYLOAD_BYTES = hadoop_codecs.MAX_BYTES = CAP_BYTES
    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        codecs.MAX_PAYLOAD_BYTES, hadoop_codecs.MAX_BYTES = caps


def _resident(what: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(what))
    return int(line.split()[1]) << 10


def check(case: Case) -> Found:
    """Read a damaged topic; raise AssertionError if that is not as it should be."""
    damaged = damage(case)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _resident("VmHWM")
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    found = read(damaged, case)
    signal.setitimer(signal.ITIMER_REAL, 0)
    taken = _resident("VmHWM") - before
    assert taken <= MOST_BYTES, f"it takes {taken >> 20} MiB"
    judge(damaged, found, case.layout)
    return found


class Coverage:
    """Knows which cases do something that none before did.

    That is, run a line that none did, where the interpreter can say, or end in a loss
    or an error of another kind.
    """

    _TOOL = 4

    def __init__(self) -> None:
        self.seen: set[object] = set()
        self._new: set[object] = set()
        if sys.version_info >= (3, 12):
            monitoring: Any = sys.monitoring
            monitoring.use_tool_id(self._TOOL, "fuzzing")
            event = monitoring.events.LINE
            monitoring.register_callback(self._TOOL, event, self._line)
            monitoring.set_events(self._TOOL, event)

    def _line(self, code: CodeType, line: int) -> Any:
        if "sparkcache_pulsar" in code.co_filename:
            self._new.add((code.co_filename, line))
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        return monitoring.DISABLE

    def close(self) -> None:
        if sys.version_info >= (3, 12):
            monitoring: Any = sys.monitoring
            monitoring.set_events(self._TOOL, 0)
            monitoring.free_tool_id(self._TOOL)

    def is_new(self, found: Found) -> bool:
        new = (self._new | found.signature()) - self.seen
        self._new.clear()
        self.seen |= new
        return bool(new)


def campaign(seconds: float, seed: int = 0) -> tuple[int, int, list[tuple[Case, str]]]:
    """Try cases for a while; return how many, how many kinds of them, and failures."""
    random_, coverage = random.Random(seed), Coverage()
    end = time.monotonic() + seconds
    corpus: list[Case] = []
    failed: list[tuple[Case, str]] = []
    cases = 0
    while time.monotonic() < end:
        case = Case(random_.choice(sorted(LAYOUTS)), (random_.randrange(1 << 32),))
        if corpus and random_.random() < 0.5:
            old = random_.choice(corpus)
            case = replace(old, seeds=(*old.seeds, *case.seeds))
        cases += 1
        try:
            if coverage.is_new(check(case)) and len(case.seeds) < 4:
                corpus.append(case)
        except Exception as error:
            failed.append((case, f"{type(error).__name__}: {error}"))
    coverage.close()
    return cases, len(coverage.seen), failed
