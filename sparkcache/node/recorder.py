"""Records what a node is asked for, as a trace that can be simulated.

A trace grows for as long as its node lives, and so does what is remembered to write it:
about 200 bytes for each run that is asked for.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sparkcache.trace import Begin, Close, Open, Over, Read, Take, TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparkcache.demand import ExtentOffset, PartitionRead, Plan, ReaderIdentity
    from sparkcache.fetch.scan import RunSlice
    from sparkcache.model import Position, RunKey
    from sparkcache.trace import Event

_log = logging.getLogger(__name__)


class Recorder:
    """Writes one file in the directory that it is told, if any.

    Args:
        now: The time, in seconds from any moment on; never goes backwards.

    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._directory: str | None = None
        self._file: IO[bytes] | None = None
        self._writer: TraceWriter | None = None
        self._lines: list[str] = []
        self._since_s = 0.0
        self._tasks: dict[PartitionRead, int] = {}
        self._sizes: dict[RunKey, int] = {}
        self._opened = 0
        self._batches: dict[str, int] = {}  # of streams

    def __repr__(self) -> str:
        return f"Recorder({self._file.name if self._file else 'off'})"

    def configure(self, directory: str | None) -> None:
        """Record there from now on; None: nowhere."""
        if directory == self._directory:
            return
        self.close()
        self._directory = directory
        if directory is not None:
            self._begin(directory)

    def close(self) -> None:
        """Record no more."""
        self.flush()
        if self._file is not None:
            self._file.close()
        self._stop()

    def flush(self) -> None:
        """Have what was recorded so far in the file, in whole lines."""
        if self._file is None or not self._lines:
            return
        text = "".join(self._lines)
        self._lines.clear()
        try:
            self._file.write(text.encode())
        except OSError as error:
            _log.warning("no more is recorded: %s", error)
            self._file.close()
            self._stop()

    def begin(self, plans: Iterable[Plan]) -> None:
        """Plans begin; those known already make no difference."""
        for plan in plans:
            if not plan.is_stream:  # what streams begin, `move` tells
                self._event(Begin(plan))

    def move(self, plans: Iterable[Plan]) -> None:
        """Streams begin batches, or are done with them."""
        for plan in plans:
            if plan.batch > self._batches.get(plan.id, 0):
                self._batches[plan.id] = plan.batch
                self._event(Begin(plan))

    def end(self, plan_ids: tuple[str, ...]) -> None:
        """Plans end."""
        for plan_id in [one for one in self._batches if one.startswith(plan_ids)]:
            del self._batches[plan_id]
        self._event(Over(plan_ids))

    def open(
        self,
        partition_read: PartitionRead,
        reader: ReaderIdentity,
        plan_ids: tuple[str, ...],
        extents: Sequence[ExtentOffset],
        first: Position,
        stop: Position,
    ) -> None:
        """A task begins to read a partition."""
        if self._writer is not None:
            number = self._tasks[partition_read] = self._opened
            self._opened += 1
            self._event(Open(number, reader, plan_ids, tuple(extents), first, stop))

    def take(
        self, partition_read: PartitionRead, run_slice: RunSlice, index: int
    ) -> None:
        """A task comes to a run."""
        number = self._tasks.get(partition_read)
        if number is None:
            return
        key, extent = run_slice.key(index), run_slice.extent
        share = (key.run.last - key.run.first + 1) / (extent.last - extent.first + 1)
        self._run(key, max(round(extent.size_bytes * share), 1))
        self._event(Take(number, key))

    def finish(self, partition_read: PartitionRead, key: RunKey) -> None:
        """A task has finished with a run that it came to."""
        number = self._tasks.get(partition_read)
        if number is not None:
            self._run(key, 1)
            self._event(Read(number, key))

    def leave(self, partition_read: PartitionRead) -> None:
        """A task ends."""
        number = self._tasks.pop(partition_read, None)
        if number is not None:
            self._event(Close(number))

    def size(self, key: RunKey, size_bytes: int) -> None:
        """It is known what a run takes in memory."""
        if self._writer is not None:
            self._sizes[key] = size_bytes

    def _begin(self, directory: str) -> None:
        path = Path(directory) / f"node-{os.getpid()}-{self._opened}.trace"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            _log.warning("nothing is recorded: %s", error)
            return
        self._since_s = self._now()
        self._writer = TraceWriter(self._lines.append)
        _log.info("recording to %s", path)

    def _stop(self) -> None:
        self._file = self._writer = None
        self._lines.clear()
        self._tasks.clear()
        self._sizes.clear()
        self._batches.clear()

    def _run(self, key: RunKey, stored_bytes: int) -> None:
        """Have a run known, and its size as soon as that is."""
        if self._writer is not None:
            size_bytes = self._sizes.get(key)
            self._writer.run(self._time_s(), key, stored_bytes, size_bytes)

    def _event(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.event(self._time_s(), event)

    def _time_s(self) -> float:
        return self._now() - self._since_s
