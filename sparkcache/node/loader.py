"""A loader process: makes one load after another, for as long as its node lives.

Forked by the node, which has imported nothing heavy: Arrow, boto3 and the connectors
are imported here.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
from contextlib import closing, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.node.channel import BrokenChannelError, Channel
from sparkcache.node.messages import (
    Decoded,
    Deny,
    Ended,
    Failed,
    Forget,
    Grant,
    Loaded,
    Prepare,
    Skipped,
    Start,
    Streamed,
    ToLoader,
    Unmap,
)

if TYPE_CHECKING:
    import socket

    from sparkcache.connector import Connector, RawRun
    from sparkcache.fetch.opener import Opener
    from sparkcache.memory.encoded import EncodedRun
    from sparkcache.memory.segment import WritableSegments
    from sparkcache.model import Slot

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
_MOST_ON_HEAP_BYTES = 32 << 20  # the most that glibc takes

_log = logging.getLogger(__name__)


def fork_loader(sock: socket.socket) -> int:
    """Fork a loader that speaks through a socket; return its pid.

    Of the node's descriptors it keeps the socket and the standard ones.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _detach({sock.fileno(), 0, 1, 2})
        _keep_freed_memory()
        gc.freeze()
        run(sock)
        status = 0
    except BrokenChannelError:
        status = 0
    except BaseException:
        _log.exception("loader failed")
    finally:
        os._exit(status)


def run(sock: socket.socket) -> None:
    """Serve a node until it hangs up, which raises BrokenChannelError."""
    loader = _Loader(Channel(sock, ToLoader))
    while True:
        loader.load()


class _Loader:
    """Makes one load after another, and prepares the next ones as it is told."""

    def __init__(self, channel: Channel[ToLoader]) -> None:
        self._channel = channel

    @cached_property
    def _opener(self) -> Opener:
        from sparkcache.fetch.opener import Opener

        return Opener()

    @cached_property
    def _segments(self) -> WritableSegments:
        from sparkcache.memory.segment import WritableSegments

        return WritableSegments()

    def load(self) -> None:
        """Wait for a load and make it."""
        start = self._receive()
        if not isinstance(start, Start):
            raise BrokenChannelError(f"{type(start).__name__} instead of Start")
        from sparkcache import connector as connectors
        from sparkcache.fetch import fetch

        try:
            connector = connectors.find(start.load.ledger.connector)
            stream = self._opener.open(
                start.number, start.root, start.config, start.load
            )
            with closing(fetch(connector, start.load, stream)) as raws:
                for index, raw in enumerate(raws):
                    if index in start.skip:
                        self._channel.send(Skipped(index, raw.offset))
                    elif not self._deliver(connector, start, index, raw):
                        break
        except SourceError as error:
            self._channel.send(Failed.of(error))
        spent = self._opener.spent()
        self._channel.send(Ended(spent.gets, spent.received_bytes, spent.retries))

    def _deliver(
        self, connector: Connector, start: Start, index: int, raw: RawRun
    ) -> bool:
        """Decode a run and hand it over, if there is room; tell whether to go on."""
        from sparkcache.memory.encoded import EncodedRun

        ledger = start.load.ledger
        decoded = connector.decode(ledger, raw, start.config.batch_bytes)
        lost = sum(loss.last - loss.first + 1 for loss in decoded.losses)
        schema = connector.schema(ledger.decoding)
        if decoded.batches:  # they may have further columns, for a resolver
            schema = decoded.batches[0].schema
        encoded = EncodedRun(decoded, schema)
        self._channel.send(Decoded(index, encoded.size_bytes, raw.offset, lost))
        answer = self._receive()
        match answer:
            case Grant():
                self._put(encoded, answer.slot, index)
            case Deny():
                for _ in range(answer.readers):
                    _stream(self._channel, encoded)
            case _:
                return False
        return not (isinstance(answer, Grant) and answer.last)

    def _put(self, run: EncodedRun, slot: Slot, index: int) -> None:
        """Write a run where there is room for it, and say so."""
        if slot.segment is not None:
            self._segments.write(run, slot.segment, slot.offset)
            self._channel.send(Loaded(index))
            return
        from sparkcache.memory.sealed import seal

        fd = seal(run, slot.size_bytes)
        try:
            self._channel.send(Loaded(index), fd)
        finally:
            os.close(fd)

    def _receive(self) -> ToLoader:
        """Return the next message that is about the present load, or a new one."""
        while True:
            message, fd = self._channel.receive()
            if fd is not None:
                self._map(message, fd)
            match message:
                case Unmap():
                    self._segments.forget(message.segments)
                case Prepare():
                    self._opener.prepare(
                        message.number, message.root, message.config, message.load
                    )
                case Forget():
                    self._opener.forget(message.number)
                case _:
                    return message

    def _map(self, message: ToLoader, fd: int) -> None:
        """Map the segment that comes along with a grant."""
        try:
            if isinstance(message, Grant) and message.slot.segment is not None:
                self._segments.add(message.slot.segment.number, fd)
        finally:
            os.close(fd)


def _stream(channel: Channel[ToLoader], encoded: EncodedRun) -> None:
    """Write a run to a reader that takes it from a pipe, and may leave."""
    theirs, ours = os.pipe()
    # Buffered, because a write that a signal interrupts, SIGCONT too, may be short.
    with suppress(BrokenPipeError), os.fdopen(ours, "wb") as sink:
        try:
            channel.send(Streamed(), theirs)
        finally:
            os.close(theirs)
        encoded.write(sink)


def _detach(keep: set[int]) -> None:
    """Leave nothing of the node in the loader but the descriptors to keep."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    begins = [fd + 1 for fd in sorted(keep)]
    ends = [*sorted(keep)[1:], os.sysconf("SC_OPEN_MAX")]
    for begin, end in zip(begins, ends, strict=True):
        if begin < end:  # CPython takes an empty range for all there is
            os.closerange(begin, end)


def _keep_freed_memory() -> None:
    """Have glibc keep what a run took for the next run, which takes as much again.

    Given back and taken anew, every page of it is faulted in and cleared again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # it is glibc's
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MOST_ON_HEAP_BYTES)
