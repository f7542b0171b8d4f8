"""A load under way, and how loads are laid out.

The runs of an extent are stored one after another, and the offset of a run is known
only once the extent was read up to it. So a load begins at the last known offset before
the wanted run and includes the runs in between that are missing. A load ends at the
first run that is held already or that the task does not want, if the offset of that run
is known; otherwise it ends with the extent. In that case other tasks that want the rest
join the load, and it is given up when there are none. So bytes are fetched once,
however many tasks wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.fetch.load import MOST_TOGETHER, Load
from sparkcache.model import RunKey
from sparkcache.node.messages import Decoded, DecodedRun
from sparkcache.node.reader_session import Peer, ReaderSession, RunSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.fetch.scan import RunSlice, Scan
    from sparkcache.model import Slot

_SMALL_BYTES = 8 << 20


@dataclass(eq=False, slots=True)
class LoadJob:
    """One load with its waiting sessions, from its request to its end.

    Attributes:
        scan: The scan whose settings the load uses.
        begin: Index of the load's first run among the runs of the extent.
        load: The load itself.
        more: Small loads, of one run each, that are done together with a small one.
        skip: Indexes of the runs that are skipped.
        waiters: Sessions that wait, by the index of the run they wait for.
        next: Index of the next run.
        pending: A decoded run whose loader waits for a reply, if any.
        granted: Memory reserved for the run that is being written.
        bundle: The runs that are being written to it together.
        streams: Sessions to which a run will be streamed once its pipe arrives; None in
            place of a session that is closed.
        number: Number of the job, unique once it is queued.
        attempt: 0, or 1 for the second attempt.
        loader: The loader that prepares the load, if any.
        is_ending: Whether no run follows the granted one; the loader will send Ended.
        begun_s: When the load began.
        has_decoded: Whether a run of the load was decoded.
        last_heard_s: When the loader last sent a message, or was last sent a reply.

    """

    scan: Scan
    begin: int
    load: Load
    more: list[Load] = field(default_factory=list)
    skip: frozenset[int] = frozenset()
    waiters: dict[int, list[ReaderSession]] = field(default_factory=dict)
    next: int = 0
    pending: Decoded | None = None
    granted: Slot | None = None
    bundle: tuple[DecodedRun, ...] = ()
    streams: list[ReaderSession | None] = field(default_factory=list)
    number: int = -1
    attempt: int = 0
    loader: Peer | None = None
    is_ending: bool = False
    begun_s: float = 0.0
    has_decoded: bool = False
    last_heard_s: float = 0.0

    def key(self, index: int) -> RunKey:
        """Return the key of a run, by its index in the load."""
        if index and self.more:
            load = self.more[index - 1]
            return RunKey(load.ledger, load.runs[0])
        return RunKey(self.load.ledger, self.load.runs[index])

    def span(self, index: int) -> RunSpan:
        """Return the span of one run in its extent."""
        if index and self.more:
            load = self.more[index - 1]
            return RunSpan(load.ledger, load.extent, 0, 1)
        first = self.begin + index
        return RunSpan(self.load.ledger, self.load.extent, first, first + 1)

    def spans(self) -> list[RunSpan]:
        """Return the spans of all remaining runs."""
        if self.more:
            return [self.span(index) for index, _ in self.remaining_runs()]
        first, stop = self.begin + self.next, self.begin + len(self.load.runs)
        return [RunSpan(self.load.ledger, self.load.extent, first, stop)]

    def can_join(self, other: LoadJob) -> bool:
        """Return whether its only load can be done together with those of another."""
        load, others, scan = self.load, other.load, other.scan
        return (
            load.is_small
            and others.is_small
            and len(other.more) < MOST_TOGETHER - 1
            and other.loader is None
            and other.attempt == self.attempt == 0
            and load.ledger.topic == others.ledger.topic
            and load.ledger.decoding == others.ledger.decoding
            and self.scan.root == scan.root
            and self.scan.storage == scan.storage
            and self.scan.config == scan.config
        )

    def remaining_runs(self) -> list[tuple[int, RunKey]]:
        """Return the remaining runs that are not skipped, with their indexes."""
        return [
            (index, self.key(index))
            for index in range(self.next, len(self.load.runs) + len(self.more))
            if index not in self.skip
        ]

    @property
    def is_small(self) -> bool:
        """Whether the remaining runs have few stored bytes, by estimate."""
        size, runs = self.load.end - self.load.offset, len(self.load.runs)
        return bool(self.more) or size * (runs - self.next) <= _SMALL_BYTES * runs

    def is_awaited(self) -> bool:
        """Return whether any session waits for a remaining run."""
        return any(self.waiters.values())

    def waiting(self) -> list[ReaderSession]:
        """Return all sessions that wait for runs of this load."""
        streams = [session for session in self.streams if session is not None]
        return [
            session for sessions in self.waiters.values() for session in sessions
        ] + streams

    def pop_waiters(self) -> list[ReaderSession]:
        """Remove and return all sessions that wait for runs of this load."""
        waiting = self.waiting()
        self.waiters.clear()
        self.streams.clear()
        return waiting

    def leave(self, session: ReaderSession) -> None:
        """Remove a session. Its position in `streams` stays: the pipe will arrive."""
        for waiters in self.waiters.values():
            if session in waiters:
                waiters.remove(session)
        self.streams = [None if other is session else other for other in self.streams]


def lay_out(
    scan: Scan,
    run_slice: RunSlice,
    index: int,
    *,
    is_present: Callable[[RunKey], bool],
    offsets: Mapping[int, int],
) -> LoadJob:
    """Return a job that loads the run at an index of a slice, and the runs after it.

    Args:
        scan: The scan whose settings the load uses.
        run_slice: The slice that the run belongs to.
        index: The index of the run in the runs of the slice.
        is_present: Returns whether a run is held or being loaded.
        offsets: The known offsets of runs in the object, by their first entry.

    """
    runs, extent = run_slice.runs, run_slice.extent
    begin = index
    while begin > 0 and runs[begin].first not in offsets:
        begin -= 1
    end = index + 1
    while end < len(runs) and not (
        runs[end].first in offsets
        and (end >= run_slice.stop or is_present(run_slice.key(end)))
    ):
        end += 1
    extent_end = extent.offset + extent.size_bytes
    return LoadJob(
        scan,
        begin,
        Load(
            run_slice.ledger,
            extent,
            runs[begin:end],
            offsets[runs[begin].first] if begin > 0 else extent.offset,
            offsets[runs[end].first] if end < len(runs) else extent_end,
        ),
        skip=frozenset(
            other - begin
            for other in range(begin, end)
            if other != index and is_present(run_slice.key(other))
        ),
    )
