"""Reading by the task itself: the same loads, decoded where they are used.

Without a node a task loads whole slices. A node says which loads a task is to do, and
which ranges of bytes these take.

The responses of the next loads are opened while the present one is decoded, so that
their latency is not noticed. Their bytes stay with the kernel and the storage's client
until they are read.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from sparkcache import connector as connectors
from sparkcache.fetch.checked_load import CheckedLoad
from sparkcache.fetch.direct_load import DirectLoad
from sparkcache.fetch.load import Load
from sparkcache.fetch.opener import Opener

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.connector import DecodedRun
    from sparkcache.fetch.scan import Scan
    from sparkcache.storage import Traffic

_MOST_PREPARED = 4
_MOST_PREPARED_BYTES = 8 << 20
_NEARLY_DONE_RUNS = 2


class DirectRun(NamedTuple):
    """A run that the task has loaded; its offset in the object is -1 if unknown."""

    decoded: DecodedRun
    offset: int


class DirectReader:
    """Loads runs of a scan for one task and keeps none of them.

    Consecutive runs come from one GET, which stays open between the calls.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._opener = Opener()
        self._numbers = count()
        self._planned: deque[DirectLoad] = deque()
        self._prepared: deque[tuple[int, DirectLoad]] = deque()
        self._current: DirectLoad | None = None
        self._load: CheckedLoad | None = None
        self._next = -1
        self._begun = self._reads = 0

    def __repr__(self) -> str:
        return f"DirectReader({self._current}, {len(self._prepared)} prepared)"

    def plan(self, loads: Iterable[DirectLoad]) -> None:
        """Set which loads will be read next, in place of those planned before."""
        self._forget_prepared()
        self._planned = deque(loads)

    def spent(self) -> Traffic:
        """Return the requests and bytes spent since the last call."""
        return self._opener.spent()

    def read(self, slice_index: int, index: int) -> DirectRun:
        """Load a run, by the index of its slice and its index. Raises SourceError."""
        load = self._load_of(slice_index, index)
        self._reads += 1
        wanted = self._scan.slices[slice_index].runs[index]
        self._next = -1  # stays unset if the load fails
        raw = next(raw for raw in load if raw.run == wanted)
        offset, decoded = raw.offset, load.decode(raw)
        assert self._current is not None, "it is being read"
        if index + 1 < self._current.end:
            self._next = index + 1
        else:
            load.close()
        if self._current.end - index <= _NEARLY_DONE_RUNS:
            self._prepare()
        return DirectRun(decoded, offset)

    def close(self) -> None:
        """Close the open GETs, if any."""
        self._close_current()
        self._forget_prepared()
        self._opener.close()

    def _load_of(self, slice_index: int, index: int) -> CheckedLoad:
        """Return the load that delivers a run next; begin it if it is another one."""
        current = self._current
        is_next = current is not None and current.run_slice == slice_index
        if self._load is None or not is_next or self._next != index:
            self._close_current()
            number, self._current = self._take(slice_index, index)
            self._load = self._begin(number, self._current)
            self._begun += 1
        return self._load

    def _take(self, slice_index: int, index: int) -> tuple[int, DirectLoad]:
        """Return the planned load that begins with a run, or one of its whole slice."""
        while self._prepared:
            number, load = self._prepared.popleft()
            if (load.run_slice, load.first) == (slice_index, index):
                return number, load
            self._opener.forget(number)
        while self._planned:
            load = self._planned.popleft()
            if (load.run_slice, load.first) == (slice_index, index):
                return next(self._numbers), load
        self._planned.extend(self._whole(other) for other in self._slices(slice_index))
        return next(self._numbers), self._whole(slice_index, index)

    def _slices(self, after: int) -> range:
        return range(after + 1, len(self._scan.slices))

    def _whole(self, slice_index: int, first: int | None = None) -> DirectLoad:
        """Return the load of a slice, or of what follows a run; its offset is known."""
        part = self._scan.slices[slice_index]
        first = part.start if first is None else first
        begin, end = part.extent.offset, part.extent.offset + part.extent.size_bytes
        return DirectLoad(slice_index, first, part.stop, 0, len(part.runs), begin, end)

    def _prepare(self) -> None:
        """Have the next loads requested, as long as they are small, or one that is not.

        Never more of them than were begun, and none before the second run is read:
        the task may leave.
        """
        most = min(self._begun, _MOST_PREPARED) if self._reads > 1 else 0
        size_bytes = sum(load.end_offset - load.offset for _, load in self._prepared)
        while self._planned and len(self._prepared) < most:
            load = self._planned[0]
            size_bytes += load.end_offset - load.offset
            if self._prepared and size_bytes > _MOST_PREPARED_BYTES:
                return
            number = next(self._numbers)
            scan = self._scan
            self._opener.prepare(number, scan.root, scan.storage, self._request(load))
            self._prepared.append((number, self._planned.popleft()))

    def _request(self, load: DirectLoad) -> Load:
        part = self._scan.slices[load.run_slice]
        runs = part.runs[load.begin : load.end]
        return Load(part.ledger, part.extent, runs, load.offset, load.end_offset)

    def _begin(self, number: int, load: DirectLoad) -> CheckedLoad:
        scan = self._scan
        connector = connectors.find(scan.slices[load.run_slice].ledger.connector)
        request = partial(self._opener.open, number, scan.root, scan.storage)
        batch_bytes = scan.config.batch_bytes
        return CheckedLoad(connector, self._request(load), request, batch_bytes)

    def _close_current(self) -> None:
        if self._load is not None:
            self._load.close()
        self._load = self._current = None
        self._next = -1

    def _forget_prepared(self) -> None:
        while self._prepared:
            self._opener.forget(self._prepared.popleft()[0])
