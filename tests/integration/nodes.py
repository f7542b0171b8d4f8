"""The topic that nodes read in these tests, and inspection of their processes."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from sparkcache.config import CacheConfig
from sparkcache.node.channel import Channel
from sparkcache.node.messages import Clear, ToTask
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory
from tests import leaks
from tests.integration.executor import DEADLINE_S, TOPIC, Executor, digest, until

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES = 60
VALUE_BYTES = 20_000
RUNS = 32
ENDED_OR_STOPPED = {
    psutil.STATUS_STOPPED,
    psutil.STATUS_TRACING_STOP,
    psutil.STATUS_ZOMBIE,
    psutil.STATUS_DEAD,
}
CONFIG = CacheConfig(
    run_bytes=64 << 10, loaders=1, request_timeout_s=20, startup_timeout_s=20
)


def write_topic(directory: Path, seed: int = 0) -> None:
    for ledger in (3, 5):
        entries = [
            Entry(
                (Message(bytes([seed, ledger, entry]) * (VALUE_BYTES // 3)),)
            ).encode()
            for entry in range(ENTRIES)
        ]
        objects = ledger_objects(TOPIC, ledger, entries, max_block_bytes=512 << 10)
        write_directory(directory, objects)


EITHER_ENGINE = pytest.mark.parametrize(
    "executor",
    [{}, {"engine": "ring", "segment_bytes": 512 << 10}],
    ids=["runs", "ring"],
    indirect=True,
)


def processes(executor: Executor) -> list[int]:
    """Process ids of the node and its loaders; the node, their parent, is the first."""
    return leaks.processes_with(executor.marker)


def stored_bytes(executor: Executor) -> int:
    """Total size of all data objects of the topic."""
    return sum(
        path.stat().st_size
        for path in Path(executor.topic).iterdir()
        if not path.name.endswith("-index")
    )


def only_warning(caplog: pytest.LogCaptureFixture) -> str:
    [record] = [r for r in caplog.records if r.levelno >= logging.WARNING]
    return record.getMessage()


def clear(executor: Executor) -> None:
    """Have a node evict all runs."""
    channel: Channel[ToTask] = Channel(executor.address.connect(DEADLINE_S), ToTask)
    with closing(channel):
        channel.send(Clear())
        until(lambda: executor.metrics().runs == executor.metrics().in_flight == 0)


def load_twice_at_once(executor: Executor) -> None:
    """Have a node load for two tasks of stage 2 while its first loader hangs."""
    scan = executor.scan()
    first, last = (
        executor.read(2, replace(scan, slices=(run_slice,)))
        for run_slice in (scan.slices[0], scan.slices[-1])
    )
    clear(executor)
    loader = processes(executor)[1]
    os.kill(loader, signal.SIGSTOP)
    waiting = threading.Thread(target=digest, args=(first,))
    waiting.start()
    try:
        until(lambda: executor.metrics().in_flight == 1)
        digest(last)
    finally:
        os.kill(loader, signal.SIGCONT)
        waiting.join()


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """Stop processes, so that all are inspected at the same moment."""

    def signal_all(number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def is_stopped(pid: int) -> bool:
        try:
            status = psutil.Process(pid).status()
        except psutil.NoSuchProcess:
            return True
        return status in ENDED_OR_STOPPED

    signal_all(signal.SIGSTOP)
    try:
        until(lambda: all(map(is_stopped, pids)))
        yield
    finally:
        signal_all(signal.SIGCONT)


def memfd_bytes(executor: Executor, *tasks: int) -> int:
    """Size of the shared memory of the node, its loaders and tasks, without repeats."""
    return processes_memfd_bytes([*processes(executor), *tasks])


def processes_memfd_bytes(pids: list[int]) -> int:
    sizes = {}
    for pid in pids:
        try:
            fds = list(Path(f"/proc/{pid}/fd").iterdir())
        except (FileNotFoundError, PermissionError):
            continue
        for fd in fds:
            try:
                if str(fd.readlink()).startswith("/memfd:sparkcache"):
                    status = fd.stat()
                    sizes[status.st_ino] = status.st_size
            except FileNotFoundError:
                continue
    return sum(sizes.values())
