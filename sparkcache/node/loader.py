"""A loader process: makes one load after another, for as long as its node lives.

Forked by the node, which has imported nothing heavy: Arrow, boto3 and the connectors
are imported here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.node.channel import BrokenChannelError, Channel
from sparkcache.node.messages import (
    Decoded,
    Deny,
    Ended,
    Failed,
    Grant,
    Loaded,
    Passed,
    Start,
    Streamed,
    ToLoader,
)

if TYPE_CHECKING:
    import socket

    from sparkcache.config import CacheConfig
    from sparkcache.connector import Connector, RawRun, Storage
    from sparkcache.memory import EncodedRun
    from sparkcache.storage import Traffic

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
    channel: Channel[ToLoader] = Channel(sock, ToLoader)
    while True:
        message, _ = channel.receive()
        if not isinstance(message, Start):
            raise BrokenChannelError(f"{type(message).__name__} instead of Start")
        _load(channel, message)


def _load(channel: Channel[ToLoader], start: Start) -> None:
    from sparkcache import connector as connectors
    from sparkcache.fetch import fetch

    storage, traffic = _storage(start.root, start.config)
    before = replace(traffic)
    try:
        connector = connectors.find(start.load.ledger.connector)
        raws = fetch(connector, storage, start.load)
        for index, raw in enumerate(raws):
            if index in start.skip:
                channel.send(Passed(index, raw.offset))
            elif not _deliver(channel, connector, start, index, raw):
                raws.close()
                break
    except SourceError as error:
        channel.send(Failed.of(error))
    channel.send(
        Ended(
            traffic.gets - before.gets,
            traffic.received_bytes - before.received_bytes,
            traffic.retries - before.retries,
        )
    )


def _deliver(
    channel: Channel[ToLoader],
    connector: Connector,
    start: Start,
    index: int,
    raw: RawRun,
) -> bool:
    """Decode a run and hand it over if there is room; False if no more is wanted."""
    from sparkcache.memory import EncodedRun

    ledger = start.load.ledger
    decoded = connector.decode(ledger, raw, start.config.batch_bytes)
    lost = sum(loss.last - loss.first + 1 for loss in decoded.losses)
    schema = connector.schema(ledger.decoding)
    if decoded.batches:  # they may have further columns, for a resolver
        schema = decoded.batches[0].schema
    encoded = EncodedRun(decoded, schema)
    channel.send(Decoded(index, encoded.size_bytes, raw.offset, lost))
    answer, _ = channel.receive()
    match answer:
        case Grant():
            fd = encoded.seal()
            try:
                channel.send(Loaded(index), fd)
            finally:
                os.close(fd)
        case Deny():
            for _ in range(answer.readers):
                _stream(channel, encoded)
        case _:
            return False
    return not (isinstance(answer, Grant) and answer.last)


def _stream(channel: Channel[ToLoader], encoded: EncodedRun) -> None:
    """Write a run to a reader that takes it from a pipe, and may leave."""
    theirs, ours = os.pipe()
    with os.fdopen(ours, "wb", buffering=0) as sink:
        try:
            channel.send(Streamed(), theirs)
        finally:
            os.close(theirs)
        with contextlib.suppress(BrokenPipeError):
            encoded.write(sink)


@lru_cache(maxsize=16)
def _storage(root: str, config: CacheConfig) -> tuple[Storage, Traffic]:
    from sparkcache.storage import Traffic, open_storage

    traffic = Traffic()
    return open_storage(root, config, traffic), traffic


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
