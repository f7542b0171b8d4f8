"""Whatever one task sends, the node goes on, and other tasks do not notice.

To try more cases, for FUZZ_SECONDS of the environment:

    FUZZ_SECONDS=600 python -m pytest -m long tests/unit/node/test_hostile_task.py

and to try one again: FUZZ_CASE=7 python -m pytest ... -k again
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest

from sparkcache.node.server import _TaskConnection
from tests.effort import tries
from tests.unit.node.hostile import conversation, open_descriptors, send
from tests.unit.node.hostile_messages import FROM_NODE, from_task
from tests.unit.node.node_world import CONFIG, SIZE, Reader, World, run_slice

if TYPE_CHECKING:
    from collections.abc import Iterable

CASES = 300
RUNS = 8
SLICES = [run_slice(0, 0, RUNS, RUNS), run_slice(1, 2, 5, RUNS)]
TASKS = from_task(SLICES, CONFIG)


class RealWorld(World):
    """A world whose descriptors are real, so that they can be sent."""

    def create(self, size_bytes: int = SIZE) -> int:
        fd = os.memfd_create("test")
        self.open_fds.add(fd)
        self.fd_bytes[fd] = size_bytes
        return fd

    def _close(self, fd: int) -> None:
        super()._close(fd)
        os.close(fd)


class Others:
    """A reader and a loader that do as they should, beside the others."""

    def __init__(self) -> None:
        self.world = RealWorld(config=replace(CONFIG, max_bytes=6 * 4096))
        self.world.loader()
        self._reader: Reader | None = None

    def go_on(self) -> None:
        """Let the loader work, and the reader read a run."""
        world = self.world
        world.settle()
        if self._reader is None:
            self._reader = world.reader(*SLICES)
        if self._reader.wants_more:
            self._reader.ask()
            world.settle()
        assert not self._reader.is_waiting
        assert not self._reader.is_refused
        if self._reader.is_done:
            self._reader.finish()
            self._reader = None
        world.service.check()

    def end(self) -> None:
        """Finish; nothing is left."""
        if self._reader is not None:
            self._reader.leave()
        self.world.settle()
        self.world.configure(replace(CONFIG, max_bytes=0))
        self.world.advance(1000)
        assert self.world.service.metrics().held_bytes == 0
        assert not self.world.service._sessions
        assert not self.world.open_fds
        self.world.service.stop()


async def some_turns() -> None:
    """Let the loop read and write what it can."""
    for _ in range(6):
        await asyncio.sleep(0)


def is_closed(sock: socket.socket) -> bool:
    """Return whether the node has closed a connection; drops what it has sent."""
    sock.setblocking(False)
    try:
        while True:
            data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 16)
            for fd in fds:
                os.close(fd)
            if not data:
                return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        sock.setblocking(True)


async def check(case: int) -> None:
    """Have one task send what the case says, beside others."""
    before = open_descriptors()
    pick, others = random.Random(case), Others()
    for _ in range(pick.randrange(10)):
        others.go_on()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    service = others.world.service
    connection = _TaskConnection(asyncio.get_running_loop(), service, ours)
    with closing(theirs):
        for piece in conversation(pick, pick.choice(TASKS), FROM_NODE):
            send(theirs, piece)
            await some_turns()
            if pick.random() < 0.2:
                others.go_on()
            elif pick.random() < 0.5:
                others.world.settle()
            await some_turns()
            has_ended = is_closed(theirs)
            assert has_ended or not piece.breaks, piece
            if has_ended:
                break
    await some_turns()
    assert connection._session not in service._sessions
    assert ours.fileno() == -1, "it is not closed"
    others.go_on()
    others.end()
    left = [what for fd, what in open_descriptors().items() if fd not in before]
    assert not left, left


def failures(cases: Iterable[int], end_s: float = float("inf")) -> list[str]:
    """Try cases for a while; return what to try again, and why."""
    failed = []
    for case in cases:
        try:
            asyncio.run(check(case))
        except Exception as error:
            failed.append(f"FUZZ_CASE={case}: {type(error).__name__}: {error}")
        if time.monotonic() > end_s:
            break
    return failed


def test_whatever_a_task_sends() -> None:
    failed = failures(range(tries(CASES)))
    assert not failed, "\n".join(failed)


def test_again() -> None:
    asyncio.run(check(int(os.environ.get("FUZZ_CASE", "7"))))


@pytest.mark.long
def test_whatever_a_task_sends_for_long() -> None:
    end_s = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "600"))
    failed = failures(count(time.time_ns()), end_s)
    assert not failed, "\n".join(failed)
