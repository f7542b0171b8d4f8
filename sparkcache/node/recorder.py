"""Recording of a node's requests as a trace, which can be simulated.

A trace grows as long as its node lives, and so does the state needed to write it: about
200 bytes for each requested run.
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
    """Writes a trace file to the configured directory, if there is one.

    Args:
        now: The time in seconds from any origin; never decreases.

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
        """Record to a directory from now on; None turns recording off."""
        if directory == self._directory:
            return
        self.close()
        self._directory = directory
        if directory is not None:
            self._begin(directory)

    def close(self) -> None:
        """Stop recording."""
        self.flush()
        if self._file is not None:
            self._file.close()
        self._stop()

    def flush(self) -> None:
        """Write what was recorded so far to the file, in whole lines."""
        if self._file is None or not self._lines:
            return
        text = "".join(self._lines)
        self._lines.clear()
        try:
            self._file.write(text.encode())
        except OSError as error:
            _log.warning("stopped recording: %s", error)
            self._file.close()
            self._stop()

    def begin(self, plans: Iterable[Plan]) -> None:
        """Record plans that begin; a plan that is known already changes nothing."""
        for plan in plans:
            if not plan.is_stream:  # `move` records the batches of streams
                self._event(Begin(plan))

    def move(self, plans: Iterable[Plan]) -> None:
        """Record streams that begin a batch, or have finished one."""
        for plan in plans:
            if plan.batch > self._batches.get(plan.id, 0):
                self._batches[plan.id] = plan.batch
                self._event(Begin(plan))

    def end(self, plan_ids: tuple[str, ...]) -> None:
        """Record that plans end."""
        for plan_id in [
            known_id for known_id in self._batches if known_id.startswith(plan_ids)
        ]:
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
        """Record that a task begins to read a partition."""
        if self._writer is not None:
            number = self._tasks[partition_read] = self._opened
            self._opened += 1
            self._event(Open(number, reader, plan_ids, tuple(extents), first, stop))

    def take(
        self, partition_read: PartitionRead, run_slice: RunSlice, index: int
    ) -> None:
        """Record that a task asks for a run."""
        number = self._tasks.get(partition_read)
        if number is None:
            return
        key, extent = run_slice.key(index), run_slice.extent
        share = (key.run.last - key.run.first + 1) / (extent.last - extent.first + 1)
        self._run(key, max(round(extent.size_bytes * share), 1))
        self._event(Take(number, key))

    def finish(self, partition_read: PartitionRead, key: RunKey) -> None:
        """Record that a task has read a run."""
        number = self._tasks.get(partition_read)
        if number is not None:
            self._run(key, 1)
            self._event(Read(number, key))

    def leave(self, partition_read: PartitionRead) -> None:
        """Record that a task ends."""
        number = self._tasks.pop(partition_read, None)
        if number is not None:
            self._event(Close(number))

    def size(self, key: RunKey, size_bytes: int) -> None:
        """Record the size of a run in memory."""
        if self._writer is not None:
            self._sizes[key] = size_bytes

    def _begin(self, directory: str) -> None:
        path = Path(directory) / f"node-{os.getpid()}-{self._opened}.trace"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            _log.warning("could not start recording: %s", error)
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
        """Write a run to the trace, with its size if it is known."""
        if self._writer is not None:
            size_bytes = self._sizes.get(key)
            self._writer.run(self._time_s(), key, stored_bytes, size_bytes)

    def _event(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.event(self._time_s(), event)

    def _time_s(self) -> float:
        return self._now() - self._since_s
