"""Runs that a task loads for itself: which, and what it reports of them.

A run that will not be kept, and that nobody else waits for, gains nothing from a second
process: its pages would be filled, sealed, mapped and freed for one reader. So the node
answers the request for it with what to load, up to the next run that is held, that is
being loaded, or that another session wants. The task reports what it has read, a few
runs at a time, so that cursors, expected reads and counts stay true.

Small runs are not loaded so: a loader fetches and decodes many of them together.

That answer cannot be taken back: a reader that comes to these runs in the meantime has
them loaded for itself.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkcache.fetch.direct_load import DirectLoad
from sparkcache.homes import Place
from sparkcache.node.load_job import lay_out
from sparkcache.node.messages import LoadDirectly

if TYPE_CHECKING:
    from collections import Counter

    from sparkcache.node.load_scheduler import LoadScheduler
    from sparkcache.node.messages import LoadedDirectly
    from sparkcache.node.reader_session import ReaderSession
    from sparkcache.node.readers import Readers
    from sparkcache.node.run_store import RunStore
    from sparkcache.node.topic_counts import TopicCounts

_MOST_RUNS = 16  # of several slices; of one slice, any number

_log = logging.getLogger(__name__)


class DirectLoads:
    """Decides which runs a session is to load itself."""

    def __init__(
        self,
        readers: Readers,
        store: RunStore,
        loads: LoadScheduler,
        counts: Counter[str],
        topics: TopicCounts,
    ) -> None:
        self._readers = readers
        self._store = store
        self._loads = loads
        self._count = counts
        self._topics = topics

    def __repr__(self) -> str:
        return f"DirectLoads({self._count['direct']} runs)"

    def is_direct(self, session: ReaderSession, run_index: tuple[int, int]) -> bool:
        """Return whether a session should load runs such as this one by itself.

        It has just asked for the run.
        """
        assert session.scan is not None
        assert session.partition_read is not None, "it reads the run"
        if not session.can_load or session.slices[run_index[0]].is_small:
            return False  # loaders fetch and decode many small runs together
        if session.place is Place.AWAY:
            return True
        scan = self._readers.scan_of(session)
        run_bytes, growth = scan.decoded(session.scan.config.run_bytes)
        return not self._store.is_worth_keeping(
            session.partition_read,
            session.key(run_index),
            run_bytes,
            scan.stored_bytes_here * growth,
        )

    def begin(self, session: ReaderSession, run_index: tuple[int, int]) -> bool:
        """Tell a session what to load itself; return False if there is nothing."""
        loads: list[DirectLoad] = []
        slice_index, index = run_index
        runs = 0
        while slice_index < len(session.slices) and runs < _MOST_RUNS:
            run_slice = session.slices[slice_index]
            load = self._load(session, slice_index, max(index, run_slice.start))
            if load is None:
                break
            loads.append(load)
            runs += load.stop - load.first
            if load.stop < run_slice.stop:
                break
            slice_index, index = slice_index + 1, 0
        if not loads:
            return False
        session.load_directly(
            (load.run_slice, index)
            for load in loads
            for index in range(load.first, load.stop)
        )
        for load in loads:
            topic = session.slices[load.run_slice].ledger.topic
            self._topics.for_topic(topic).loads += 1
        session.peer.send(LoadDirectly(tuple(loads)))
        return True

    def next_reported(self, session: ReaderSession) -> tuple[int, int] | None:
        """Return the run that a session reports next as read; None if there is none."""
        return session.direct.popleft() if session.direct else None

    def spend(self, session: ReaderSession, message: LoadedDirectly) -> None:
        """Count what a session has spent in the storage since its last report."""
        run_slice = session.slices[min(session.cursor[0], len(session.slices) - 1)]
        topic = self._topics.for_topic(run_slice.ledger.topic)
        topic.gets += message.gets
        topic.received_bytes += message.received_bytes
        self._count["retries"] += message.retries
        self._count["lost_entries"] += message.lost_entries

    def loaded(
        self, session: ReaderSession, run_index: tuple[int, int], offset: int
    ) -> None:
        """Record a run that a session has loaded itself, and where it begins."""
        self._count["direct"] += 1
        run_slice, index = session.slices[run_index[0]], run_index[1]
        if session.place is Place.AWAY:
            topic = self._topics.for_topic(run_slice.ledger.topic)
            topic.away_bytes += run_slice.stored_bytes(index)
        self._loads.learn(run_slice, index, offset)

    def _load(
        self, session: ReaderSession, slice_index: int, index: int
    ) -> DirectLoad | None:
        """Lay out the load of a run and of those after it; None if it is not direct."""
        run_slice = session.slices[slice_index]
        stop = self._stop(session, slice_index, index)
        if stop == index:
            return None
        assert session.scan is not None
        job = lay_out(
            session.scan,
            replace(run_slice, stop=stop),
            index,
            is_present=lambda key: key in self._loads or self._store.is_held(key),
            offsets=self._loads.offsets(run_slice),
        )
        load = job.load
        end = job.begin + len(load.runs)
        return DirectLoad(
            slice_index, index, stop, job.begin, end, load.offset, load.end
        )

    def _stop(self, session: ReaderSession, slice_index: int, index: int) -> int:
        """Return the index of the first run from one on that is not loaded directly."""
        run_slice = session.slices[slice_index]
        rest = replace(session.span((slice_index, index)), stop=run_slice.stop)
        is_shared = self._readers.is_wanted_beside(session, rest)
        while index < run_slice.stop:
            key, span = run_slice.key(index), session.span((slice_index, index))
            if key in self._loads or self._store.is_held(key):
                break
            if is_shared and self._readers.is_wanted_beside(session, span):
                break
            index += 1
        return index
