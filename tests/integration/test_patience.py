"""How long a node waits for tasks that stopped, and keeps loaders without work."""

from __future__ import annotations

import math
import os
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkcache.demand import ReaderIdentity
from sparkcache.model import ReadToken
from sparkcache.node.channel import Channel
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    KeepAlive,
    Open,
    Streamed,
    Take,
    ToTask,
)
from sparkcache.node.packed_open import packed
from tests.integration.executor import DEADLINE_S, WHOLE, digest, until
from tests.integration.nodes import load_twice_at_once, processes

if TYPE_CHECKING:
    from tests.integration.executor import Executor

pytestmark = pytest.mark.long


def test_a_task_that_stopped_does_not_hold_a_loader(executor: Executor) -> None:
    """It has received the pipe through which its run comes, and does not read it."""
    executor = replace(
        executor,
        config=replace(
            executor.config, max_bytes=0, run_bytes=256 << 10, request_timeout_s=120
        ),
    )
    content = digest(executor.read(config=replace(executor.config, enabled=False)))
    next(executor.read())
    stopped = Open(
        PROTOCOL_VERSION,
        executor.scan(),
        ReaderIdentity(ReadToken(7, 0), "scan", WHOLE, math.inf),
        0,
        executor.config.node,
        (),
    )
    sock = executor.address.connect(DEADLINE_S)
    with closing(Channel[ToTask](sock, ToTask)) as channel:
        channel.send(packed(stopped))
        channel.send(Take(0, 0))
        message, fd = channel.receive()
        while isinstance(message, KeepAlive):
            message, fd = channel.receive()
        assert isinstance(message, Streamed)
        assert fd is not None
        begin_s = time.monotonic()
        assert digest(executor.read(1)) == content
        assert 5 < time.monotonic() - begin_s < 40
        os.close(fd)


def test_loaders_without_work_end(executor: Executor) -> None:
    config = replace(executor.config, loaders=3, max_bytes=300_000)
    digest(executor.read(1))
    load_twice_at_once(replace(executor, config=config))
    assert len(processes(executor)) == 3
    until(lambda: len(processes(executor)) == 2, deadline_s=70)
    assert executor.metrics().loaders == 1
    assert executor.metrics().failures == 0
