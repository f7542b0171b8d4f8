"""A loader process: runs one load after another, for as long as its node lives.

It is forked by the node, which has imported nothing heavy; the loader imports Arrow,
boto3 and the connectors here.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
from contextlib import closing
from functools import cached_property, partial
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.node.channel import BrokenChannelError, Channel
from sparkcache.node.loader_limits import private_bytes
from sparkcache.node.messages import (
    Decoded,
    DecodedRun,
    DecodedTogether,
    Deny,
    Ended,
    Failed,
    Forget,
    Grant,
    GrantBundle,
    Loaded,
    LoadedBundle,
    Prepare,
    Skipped,
    Start,
    Streamed,
    ToLoader,
    Unmap,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from sparkcache import connector
    from sparkcache.fetch.opener import Opener
    from sparkcache.fetch.together import LoadedRun
    from sparkcache.filters import RunStatistics
    from sparkcache.memory.encoded import EncodedRun, EncodedSmallRun
    from sparkcache.memory.segment import WritableSegments
    from sparkcache.memory.shared_counters import SharedCounters
    from sparkcache.model import Slot

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_RETAINED_BYTES = 64 << 20
_KEPT_BYTES = 144 << 20  # more than 192 MiB, and the node may have to end the loader
_STREAM_TIMEOUT_S = 10.0  # a task that waits for a run reads it at once
_MAX_ON_HEAP_BYTES = 32 << 20  # the maximum that glibc accepts

_log = logging.getLogger(__name__)


def fork_loader(sock: socket.socket, spent: SharedCounters) -> int:
    """Fork a loader that communicates through a socket; return its pid.

    Of the node's descriptors it keeps the socket and the standard streams.

    Args:
        sock: The loader's end of the connection.
        spent: Where the loader counts GETs, bytes received and retries.

    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _detach({sock.fileno(), 0, 1, 2})
        _keep_freed_memory()
        gc.freeze()
        run(sock, spent)
        status = 0
    except BrokenChannelError:
        status = 0
    except BaseException:
        _log.exception("loader failed")
    finally:
        os._exit(status)


def run(sock: socket.socket, spent: SharedCounters) -> None:
    """Serve a node; raises BrokenChannelError when it closes the connection."""
    loader = _Loader(Channel(sock, ToLoader), spent)
    loader.load()
    # The modules that this has imported stay: the collector need not visit them again.
    gc.collect()
    gc.freeze()
    while True:
        loader.load()


class _Loader:
    """Runs one load after another, and prepares later ones on request."""

    def __init__(self, channel: Channel[ToLoader], spent: SharedCounters) -> None:
        self._channel = channel
        self._spent = spent

    @cached_property
    def _opener(self) -> Opener:
        from sparkcache.fetch.opener import Opener

        return Opener(self._spent.write)

    @cached_property
    def _segments(self) -> WritableSegments:
        from sparkcache.memory.segment import WritableSegments

        return WritableSegments()

    def load(self) -> None:
        """Wait for a load and run it."""
        start = self._receive()
        if not isinstance(start, Start):
            raise BrokenChannelError(f"expected Start, received {type(start).__name__}")
        try:
            self._load_together(start) if start.together else self._load(start)
        except SourceError as error:
            self._channel.send(Failed.from_error(error))
        if private_bytes(os.getpid()) > _KEPT_BYTES:
            from sparkcache.memory.freed_memory import return_freed_memory

            return_freed_memory()
        spent = self._opener.spent()
        self._channel.send(Ended(spent.gets, spent.received_bytes, spent.retries))

    def _load(self, start: Start) -> None:
        """Load the runs of an extent, one after another."""
        from sparkcache import connector as connectors
        from sparkcache.fetch.checked_load import CheckedLoad
        from sparkcache.memory.encoded import EncodedRun

        connector = connectors.find(start.load.ledger.connector)
        request = partial(self._opener.open, start.number, start.root, start.storage)
        load = CheckedLoad(connector, start.load, request, start.batch_bytes)
        with closing(load):
            for index, raw in enumerate(load):
                if index in start.skip:
                    self._channel.send(Skipped(index, raw.offset))
                    continue
                decoded = load.decode(raw)
                encoded = EncodedRun(decoded, load.schema(decoded))
                statistics = partial(load.statistics, decoded)
                lost = _lost_entries(decoded)
                if not self._deliver(index, encoded, raw.offset, lost, statistics):
                    break

    def _load_together(self, start: Start) -> None:
        """Load small loads at once; what shares no memory follows one by one."""
        from sparkcache.fetch.together import load_all
        from sparkcache.memory.encoded import EncodedSmallRun

        loads = (start.load, *start.more)
        storage = self._opener.storage(start.root, start.storage)
        fetched = self._opener.fetch(start.number, storage, loads)
        runs: dict[int, tuple[LoadedRun, EncodedSmallRun]] = {}
        failures = []
        found = load_all(storage, loads, fetched, start.batch_bytes)
        for index, run in enumerate(found):
            if isinstance(run, SourceError):
                failures.append((index, Failed.from_error(run)))
            else:
                runs[index] = run, EncodedSmallRun(run.decoded, run.schema)
        lost = sum(_lost_entries(run.decoded) for run, _ in runs.values())
        answer = self._report(runs, failures, lost)
        granted: tuple[int, ...] = ()
        if isinstance(answer, GrantBundle):
            granted = answer.indexes
            self._write_bundle(runs, answer)
        for index in sorted(runs.keys() - set(granted)):
            run, encoded = runs[index]
            known = partial(_itself, run.statistics)
            if not self._deliver(index, encoded, run.offset, 0, known):
                break

    def _report(
        self,
        runs: Mapping[int, tuple[LoadedRun, EncodedSmallRun]],
        failures: list[tuple[int, Failed]],
        lost_entries: int,
    ) -> ToLoader:
        """Tell the node which small loads are decoded; return its answer."""
        decoded = tuple(
            DecodedRun(index, encoded.size_bytes, run.offset)
            for index, (run, encoded) in runs.items()
        )
        spent = self._opener.spent()
        self._channel.send(
            DecodedTogether(
                *(decoded, tuple(failures), lost_entries),
                *(spent.gets, spent.received_bytes, spent.retries),
            )
        )
        return self._receive()

    def _write_bundle(
        self,
        runs: Mapping[int, tuple[LoadedRun, EncodedSmallRun]],
        grant: GrantBundle,
    ) -> None:
        """Write the granted runs to memory that they share, and report them."""
        if not grant.indexes:
            return
        from sparkcache.memory.sealed import seal_bundle

        granted = [runs[index] for index in grant.indexes]
        encoded = [encoded for _, encoded in granted]
        fd = seal_bundle(encoded, grant.offsets, grant.size_bytes)
        try:
            statistics = tuple(run.statistics for run, _ in granted)
            self._channel.send(LoadedBundle(statistics), fd)
        finally:
            os.close(fd)

    def _deliver(
        self,
        index: int,
        encoded: EncodedRun | EncodedSmallRun,
        offset: int,
        lost_entries: int,
        statistics: Callable[[], RunStatistics | None],
    ) -> bool:
        """Deliver a decoded run as the node answers; return whether to go on."""
        spent = self._opener.spent()
        self._channel.send(
            Decoded(
                *(index, encoded.size_bytes, offset, lost_entries),
                *(spent.gets, spent.received_bytes, spent.retries),
            )
        )
        answer = self._receive()
        match answer:
            case Grant():
                self._write(encoded, answer.slot, Loaded(index, statistics()))
            case Deny():
                for _ in range(answer.readers):
                    _stream(self._channel, encoded)
            case _:
                return False
        return not (isinstance(answer, Grant) and answer.last)

    def _write(
        self, run: EncodedRun | EncodedSmallRun, slot: Slot, report: Loaded
    ) -> None:
        """Write a run into its slot, and report it."""
        if slot.segment is not None:
            self._segments.write(run, slot.segment, slot.offset)
            self._channel.send(report)
            return
        from sparkcache.memory.sealed import seal

        fd = seal(run, slot.size_bytes)
        try:
            self._channel.send(report, fd)
        finally:
            os.close(fd)

    def _receive(self) -> ToLoader:
        """Return the next message about the present load, or a new load."""
        while True:
            message, fd = self._channel.receive()
            if fd is not None:
                self._map(message, fd)
            match message:
                case Unmap():
                    self._segments.forget(message.segments)
                case Prepare():
                    self._prepare(message)
                case Forget():
                    self._opener.forget(message.number)
                case _:
                    return message

    def _prepare(self, prepare: Prepare) -> None:
        number, storage = prepare.number, (prepare.root, prepare.storage)
        if prepare.together:
            loads = (prepare.load, *prepare.more)
            self._opener.prepare_together(number, *storage, loads)
        else:
            self._opener.prepare(number, *storage, prepare.load)

    def _map(self, message: ToLoader, fd: int) -> None:
        """Map the segment whose descriptor came with a grant."""
        try:
            if isinstance(message, Grant) and message.slot.segment is not None:
                self._segments.add(message.slot.segment.number, fd)
        finally:
            os.close(fd)


def _lost_entries(run: connector.DecodedRun) -> int:
    return sum(loss.last - loss.first + 1 for loss in run.losses)


def _itself(statistics: RunStatistics | None) -> RunStatistics | None:
    return statistics


def _stream(
    channel: Channel[ToLoader],
    encoded: EncodedRun | EncodedSmallRun,
    timeout_s: float = _STREAM_TIMEOUT_S,
) -> None:
    """Write a run to a pipe, whose reader may leave early, or read no further."""
    read_end, write_end = os.pipe()
    try:
        channel.send(Streamed(), read_end)
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    from sparkcache.memory.pipe import write_run

    try:
        write_run(encoded, write_end, timeout_s)
    except BrokenPipeError:
        pass
    except TimeoutError as error:
        _log.warning("a task does not read the run that it asked for: %s", error)


def _detach(keep: set[int]) -> None:
    """Drop the node's signal handlers and all of its descriptors but those to keep."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Not up to the limit of descriptors, which may be huge, or lower than the highest.
    last = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    begins = [fd + 1 for fd in sorted(keep)]
    ends = [*sorted(keep)[1:], last + 1]
    for begin, end in zip(begins, ends, strict=True):
        if begin < end:  # CPython takes an empty range for all descriptors
            os.closerange(begin, end)


def _keep_freed_memory() -> None:
    """Have glibc keep the memory of one run for the next, which needs as much.

    If it were returned to the kernel and allocated again, every page would be faulted
    in and cleared again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc only
        mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAX_ON_HEAP_BYTES)
