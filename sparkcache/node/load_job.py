"""A load under way, and how one is laid out.

Runs of an extent follow one another in the stored bytes, and where a run begins is
known only once its extent was read as far as that. So a load begins at the nearest
place known before the run that is wanted and takes in what is missing on the way. It
ends where a run begins that is here already or that the task does not want, if that
place is known, otherwise with the extent: then other tasks that want the rest join
it, and when nobody does it is given up. So bytes are fetched once, whoever waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.fetch.load import Load
from sparkcache.model import RunKey
from sparkcache.node.messages import Decoded
from sparkcache.node.reader_session import Peer, ReaderSession, RunSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.fetch.scan import RunSlice, Scan
    from sparkcache.model import Slot

_SMALL_BYTES = 8 << 20


@dataclass(eq=False, slots=True)
class LoadJob:
    """One load, from its request to its end.

    Attributes:
        scan: Whose settings it is made with.
        begin: Index of its first run among the runs of the extent.
        load: What to read.
        skip: Indexes of runs that are passed over.
        waiters: Tasks that wait, by the index of the run they wait for.
        next: Index of the run that comes next.
        pending: A run that is decoded and waits for an answer, if one does.
        granted: Reserved for a run that is being written.
        streams: Tasks that will get a run through a pipe, which is not there yet;
            None in the place of one that is gone.
        number: Tells it from all others, once it is queued.
        attempt: 0, or 1 the second time.
        loader: The loader that was told to prepare it, if one was.
        over: No other run comes than the one granted; its loader will say Ended.
        begun_s: When it began.
        is_fruitful: Whether a run of it was decoded.
        heard_s: When its loader last said something, or was told to go on.

    """

    scan: Scan
    begin: int
    load: Load
    skip: frozenset[int] = frozenset()
    waiters: dict[int, list[ReaderSession]] = field(default_factory=dict)
    next: int = 0
    pending: Decoded | None = None
    granted: Slot | None = None
    streams: list[ReaderSession | None] = field(default_factory=list)
    number: int = -1
    attempt: int = 0
    loader: Peer | None = None
    over: bool = False
    begun_s: float = 0.0
    is_fruitful: bool = False
    heard_s: float = 0.0

    def key(self, index: int) -> RunKey:
        """Return the key of a run, by its index in the load."""
        return RunKey(self.load.ledger, self.load.runs[index])

    def span(self, index: int | None = None) -> RunSpan:
        """Return where in the extent a run lies, or all that is still to come."""
        if index is not None:
            first, stop = index, index + 1
        else:
            first, stop = self.next, len(self.load.runs)
        return RunSpan(
            self.load.ledger, self.load.extent, self.begin + first, self.begin + stop
        )

    def rest(self) -> list[tuple[int, RunKey]]:
        """Return the runs still to come, with their indexes."""
        return [
            (index, self.key(index))
            for index in range(self.next, len(self.load.runs))
            if index not in self.skip
        ]

    @property
    def is_small(self) -> bool:
        """Whether few stored bytes of it are still to come, about."""
        size, runs = self.load.end - self.load.offset, len(self.load.runs)
        return size * (runs - self.next) <= _SMALL_BYTES * runs

    def is_awaited(self) -> bool:
        """Tell whether somebody waits for a run still to come."""
        return any(self.waiters.values())

    def waiting(self) -> list[ReaderSession]:
        """Return all who wait for anything of it."""
        streams = [session for session in self.streams if session is not None]
        return [
            session for sessions in self.waiters.values() for session in sessions
        ] + streams

    def dismiss(self) -> list[ReaderSession]:
        """Return all who wait for anything of it; they do no longer."""
        waiting = self.waiting()
        self.waiters.clear()
        self.streams.clear()
        return waiting

    def leave(self, session: ReaderSession) -> None:
        """Forget a task. Its place in line for a pipe stays: the pipe will come."""
        for waiters in self.waiters.values():
            if session in waiters:
                waiters.remove(session)
        self.streams = [None if other is session else other for other in self.streams]


def lay_out(
    scan: Scan,
    run_slice: RunSlice,
    index: int,
    *,
    is_here: Callable[[RunKey], bool],
    offsets: Mapping[int, int],
) -> LoadJob:
    """Return the load that delivers the run at an index of a slice, and what follows it.

    Args:
        scan: Whose load it is.
        run_slice: The slice that the run belongs to.
        index: The index of the run in the runs of the slice.
        is_here: Tells whether a run is held, or being loaded.
        offsets: Where runs of the extent begin, by their first entry, as far as known.

    """
    runs, extent = run_slice.runs, run_slice.extent
    begin = index
    while begin > 0 and runs[begin].first not in offsets:
        begin -= 1
    end = index + 1
    while end < len(runs) and not (
        runs[end].first in offsets
        and (end >= run_slice.stop or is_here(run_slice.key(end)))
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
        frozenset(
            at - begin
            for at in range(begin, end)
            if at != index and is_here(run_slice.key(at))
        ),
    )
