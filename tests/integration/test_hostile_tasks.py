"""A node that is sent anything serves other tasks as before, and keeps nothing of it.

Each failure names the case. To try one again: FUZZ_CASE=7; for longer: FUZZ_SECONDS.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections import Counter
from contextlib import closing, suppress
from itertools import count
from threading import Event, Thread
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.effort import tries
from tests.integration.executor import DEADLINE_S, Executor, digest, until
from tests.integration.nodes import EITHER_ENGINE, memfd_bytes, processes
from tests.unit.node.hostile import conversation, open_descriptors, send
from tests.unit.node.hostile_messages import FROM_NODE, from_task

if TYPE_CHECKING:
    from collections.abc import Iterable

CASES = 60
MOST_GROWTH_BYTES = 16 << 20


class Reader(Thread):
    """A task after another reads the topic, beside the hostile ones."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self.digests: list[str] = []
        self._executor = executor
        self._ends = Event()

    def run(self) -> None:
        for stage in count(1):
            self.digests.append(digest(self._executor.read(stage)))
            if self._ends.is_set():
                return

    def end(self) -> None:
        self._ends.set()
        self.join()


def attack(executor: Executor, case: int) -> None:
    """Send the node what the case says; it has to close the connection for it."""
    pick, scan = random.Random(case), executor.scan()
    tasks = from_task(scan.slices[:2], executor.config, scan.root)
    with closing(executor.address.connect(DEADLINE_S)) as sock:
        for piece in conversation(pick, pick.choice(tasks), FROM_NODE):
            send(sock, piece)
        with suppress(OSError):  # the node has left already
            if not piece.breaks:
                sock.shutdown(socket.SHUT_WR)
        _drain(sock)


def _drain(sock: socket.socket) -> None:
    """Wait until the node has closed the connection."""
    with suppress(ConnectionError):
        while True:
            data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 16)
            for fd in fds:
                os.close(fd)
            if not data:
                return


def descriptors(executor: Executor) -> Counter[str]:
    """What the node and its loaders have open, except the runs that it holds."""
    return Counter(
        what.partition(":[")[0]
        for pid in processes(executor)
        for what in open_descriptors(pid).values()
        if not what.startswith("/memfd:sparkcache")
    )


def private_bytes(pid: int) -> int:
    return int(psutil.Process(pid).memory_full_info().uss)


def check(executor: Executor, content: str, cases: Iterable[int]) -> None:
    """Try cases, with a reader beside them."""
    assert digest(executor.read()) == content
    node = processes(executor)[0]
    attack(executor, 0)
    digest(executor.read())
    until(lambda: executor.metrics().in_flight == 0)
    before, before_bytes = descriptors(executor), private_bytes(node)
    reader = Reader(executor)
    reader.start()
    try:
        for case in cases:
            try:
                attack(executor, case)
            except Exception as error:
                raise AssertionError(f"FUZZ_CASE={case}") from error
    finally:
        reader.end()
    assert set(reader.digests) == {content}
    assert processes(executor)[0] == node
    with suppress(AssertionError):
        until(lambda: descriptors(executor) <= before, 5)
    assert not descriptors(executor) - before
    assert private_bytes(node) - before_bytes < MOST_GROWTH_BYTES
    assert memfd_bytes(executor) <= executor.config.max_bytes
    until(lambda: executor.metrics().pinned_runs == 0)


@EITHER_ENGINE
def test_a_node_that_is_sent_anything(
    executor: Executor, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = int(os.environ.get("FUZZ_CASE", "0"))
    check(executor, content, range(first, first + tries(CASES)))
    assert not caplog.records, "other tasks have noticed"


@pytest.mark.long
@EITHER_ENGINE
def test_a_node_that_is_sent_anything_for_long(
    executor: Executor, content: str
) -> None:
    end_s = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "300"))

    def cases() -> Iterable[int]:
        for case in count(time.time_ns()):
            yield case
            if time.monotonic() > end_s:
                return

    check(executor, content, cases())
