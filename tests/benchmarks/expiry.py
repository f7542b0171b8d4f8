"""How long a reader waits while very much expires at once.

    .venv/bin/python tests/benchmarks/expiry.py [--json] [--save]

Settings with shorter times reach a node, by which nearly all that it holds is overdue,
while it is asked over its socket without a break. In milliseconds and seconds:

    million       1,000,000 runs in the core of a real event loop, without descriptors
    descriptors   a real node with a small run in each descriptor that it may have
    gibibyte      a real node with 1 GiB of runs of the usual size

of which each has

    max_delay_ms  the longest that any question waited for its answer, less the time in
                  which the node or the reader was ready and had to wait for a core
    max_wall_ms   the longest with that: on busy cores it includes other programs
    p99_delay_ms  99 in 100 waited for less, likewise with that
    idle_ms       the longest before, with nothing to expire, likewise
    freed_s       from the settings on, until all that is overdue is gone
    runs          how many were held; nearly all are evicted
    questions     how many were asked until then

The questions to the real nodes are reads of runs that live on, each from Take to
mapped, and Ask; to the million, Ask. `one_go_ms` is what the reader would wait for if
nothing was cut into passes: `million` in the core alone, `gibibyte` and `descriptors`
with closing their descriptors. `pass_ms` is the longest pass, likewise. Both are
processor time. `max_delay_ms_1m` is the first one of the above once more.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import shutil
import signal
import statistics
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from sparkcache import CacheConfig
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.fetch import Scan
from sparkcache.model import Ledger, ObjectId, ReadToken, Run, RunKey, Slot
from sparkcache.node import server as server_module
from sparkcache.node.address import Address
from sparkcache.node.channel import Channel
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    GetMetrics,
    MetricsReply,
    Open,
    ToTask,
)
from sparkcache.node.packed_open import packed
from sparkcache.node.service import Service
from sparkcache_pulsar.testing import synthetic_topic, write_directory
from tests.benchmarks import record
from tests.integration.executor import TOPIC, Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkcache.metrics import Metrics

MILLION = 1_000_000
PAGE = 4096
GIB = 1 << 30
RUN_BYTES = 4 << 20
BLOCK_BYTES = 256 << 10  # of small runs: a task that reads some names all of a block
SPARE_DESCRIPTORS = 512
LIVING = 8  # runs that are read all the time, and stay
QUESTIONS = 300  # before anything expires
AFTER_READ_S = 3.0
LONG = CacheConfig(
    max_bytes=1 << 40,
    loaders=1,
    ttl_create_s=3600,
    ttl_after_read_s=3600,
    request_timeout_s=300,
)
SHORT = replace(LONG, ttl_create_s=AFTER_READ_S, ttl_after_read_s=AFTER_READ_S)


@dataclass
class Delays:
    """How long questions waited, in seconds: before, and while much expires.

    `own_s` is `busy_s` less what the two processes waited for a core.
    """

    pids: tuple[int, int]
    runs: int
    idle_s: list[float] = field(default_factory=list)
    busy_s: list[float] = field(default_factory=list)
    own_s: list[float] = field(default_factory=list)
    freed_s: float = 0.0

    def idle(self, ask: Callable[[], Any]) -> Any:
        """Ask while nothing expires."""
        return timed(self.idle_s, ask)

    def busy(self, ask: Callable[[], Any]) -> Any:
        """Ask while much expires."""
        waited_s = self._waited_s()
        answer = timed(self.busy_s, ask)
        waited_s = self._waited_s() - waited_s
        self.own_s.append(max(self.busy_s[-1] - waited_s, 0.0))
        return answer

    def _waited_s(self) -> float:
        """Return how long the processes have been ready and did not run."""
        stats = [Path(f"/proc/{pid}/schedstat").read_text() for pid in self.pids]
        return sum(int(stat.split()[1]) for stat in stats) / 1e9


def measure() -> dict[str, Any]:
    """Measure each kind of node."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE_DESCRIPTORS
    small = [PAGE] * (descriptors - 300)  # the rest is this program's own
    result = {
        "million": summary(million()) | in_process([0] * MILLION, lambda _: None),
        "descriptors": summary(real(descriptors, *small_runs(descriptors)))
        | in_process([memfd(size) for size in small], os.close, PAGE),
        "gibibyte": summary(real(0, *large_runs()))
        | in_process([memfd(RUN_BYTES) for _ in range(GIB // RUN_BYTES)], os.close),
    }
    return {"max_delay_ms_1m": result["million"]["max_delay_ms"]} | result


def summary(delays: Delays) -> dict[str, float]:
    """Summarize what was measured."""
    return {
        "max_delay_ms": ms(max(delays.own_s)),
        "max_wall_ms": ms(max(delays.busy_s)),
        "p99_delay_ms": ms(statistics.quantiles(delays.busy_s, n=100)[98]),
        "idle_ms": ms(max(delays.idle_s)),
        "freed_s": round(delays.freed_s, 2),
        "questions": len(delays.busy_s),
        "runs": delays.runs,
    }


def ms(seconds: float) -> float:
    """Return milliseconds."""
    return round(seconds * 1000, 2)


def timed(
    times_s: list[float],
    ask: Callable[[], Any],
    clock: Callable[[], float] = time.perf_counter,
) -> Any:
    """Ask, and note how long it took."""
    begin_s = clock()
    answer = ask()
    times_s.append(clock() - begin_s)
    return answer


# A pass, without a socket


def in_process(
    fds: list[int], close: Callable[[int], None], size_bytes: int = RUN_BYTES
) -> dict[str, float]:
    """Time the passes of a Service over these runs, and one pass over as many."""
    now_s = 0.0
    service = Service(
        LONG.node, max_runs=2 * MILLION, now=lambda: now_s, close_fd=close
    )
    fill(service, fds, size_bytes)
    now_s = 2 * LONG.ttl_create_s
    passes_s: list[float] = []
    while timed(passes_s, service.expire, time.process_time):
        pass
    again = [memfd(size_bytes) for _ in fds] if close is os.close else fds
    service = Service(
        LONG.node, max_runs=2 * MILLION, now=lambda: now_s, close_fd=close
    )
    fill(service, again, size_bytes)
    now_s *= 2
    begin_s = time.process_time()
    service._store._free(service._store._runs.expire(now_s))
    one_go_s = time.process_time() - begin_s
    assert service.metrics().runs == 0
    return {"pass_ms": ms(max(passes_s)), "one_go_ms": ms(one_go_s)}


def memfd(size_bytes: int) -> int:
    """Make shared memory of that size; return its descriptor."""
    fd = os.memfd_create("expiry", os.MFD_CLOEXEC)
    os.write(fd, bytes(size_bytes))
    return fd


def fill(service: Service, fds: list[int], size_bytes: int) -> None:
    """Have a service hold a run for each descriptor."""
    now_s = service._now()
    ledgers = [
        Ledger("bench", f"topic-{topic}", 0, ObjectId(f"mem://{topic}", 1, "v1"))
        for topic in range(100)
    ]
    for index, fd in enumerate(fds):
        key = RunKey(ledgers[index % 100], Run(index, index))
        fits, _ = service._store._planned.reserve(key, size_bytes, now_s)
        assert fits
        service._store._planned.insert(key, fd, slot=Slot(size_bytes), now_s=now_s)


# A million runs in a real event loop


def million() -> Delays:
    """Ask a node that lets go of a million runs."""
    with (
        tempfile.TemporaryDirectory() as directory,
        node_of_a_million(directory) as (at, pid),
    ):
        delays = Delays((pid, os.getpid()), MILLION)
        asked: Channel[ToTask] = Channel(at.connect(300), ToTask)
        opener: Channel[ToTask] = Channel(at.connect(300), ToTask)
        with closing(asked), closing(opener):
            assert ask(asked).runs == MILLION
            time.sleep(AFTER_READ_S)
            for _ in range(QUESTIONS):
                delays.idle(lambda: ask(asked))
            opener.send(packed(opening(SHORT)))
            begin_s = time.perf_counter()
            while delays.busy(lambda: ask(asked)).runs:
                pass
            delays.freed_s = time.perf_counter() - begin_s
    return delays


def ask(channel: Channel[ToTask]) -> Metrics:
    """Ask a node for what it has counted."""
    channel.send(GetMetrics())
    answer, _ = channel.receive()
    assert isinstance(answer, MetricsReply)
    return answer.metrics


def opening(settings: CacheConfig) -> Open:
    """Return what a task of a later stage says that reads nothing."""
    reader = ReaderIdentity(ReadToken(1, 0), "scan", Consumer(TOPIC), math.inf)
    return Open(
        PROTOCOL_VERSION,
        Scan("", settings.storage, settings.scan, ()),
        reader,
        1,
        settings.node,
        (),
    )


@contextmanager
def node_of_a_million(directory: str) -> Iterator[tuple[Address, int]]:
    """Run the node's own event loop in a process, around a core that is full."""
    address = Address(Path(directory))
    address.prepare()
    listener = address.listen()
    pid = os.fork()
    if not pid:
        try:
            serve(listener)
        finally:
            os._exit(0)
    listener.close()
    try:
        yield address, pid
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def serve(listener: Any) -> None:
    """Be that node."""
    server_module._max_runs = lambda: 2 * MILLION
    loop = asyncio.new_event_loop()
    server = server_module._Server(loop, listener, LONG.node, cores=1)
    server.service._store._close_fd = lambda _: None
    fill(server.service, [0] * MILLION, PAGE)
    loop.add_signal_handler(signal.SIGTERM, loop.stop)
    loop.run_forever()
    server.close()


# Real nodes


def real(least_runs: int, topic: Path, config: CacheConfig) -> Delays:
    """Fill a node, then read a few runs of it while it lets go of the others."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["SPARK_LOCAL_DIRS"] = directory
        executor = Executor(Path(directory), topic, config)
        scan = executor.scan()
        for _ in executor.read(scan=scan):
            pass
        pids = (node_of(executor), os.getpid())
        delays = Delays(pids, executor.metrics().runs)
        assert delays.runs >= least_runs
        last = scan.slices[-1]
        few = replace(
            scan, slices=(replace(last, start=last.stop - LIVING, stop=last.stop),)
        )
        channel: Channel[ToTask] = Channel(executor.address.connect(300), ToTask)
        with closing(channel):
            ready_s = time.monotonic() + AFTER_READ_S
            while time.monotonic() < ready_s or len(delays.idle_s) < QUESTIONS:
                question(executor, few, config, 0, channel, delays.idle)
            short = replace(
                config, ttl_create_s=AFTER_READ_S, ttl_after_read_s=AFTER_READ_S
            )
            begin_s = time.perf_counter()
            while question(executor, few, short, 1, channel, delays.busy) > LIVING:
                pass
            delays.freed_s = time.perf_counter() - begin_s
            assert ask(channel).hits >= len(delays.busy_s) // 2
    shutil.rmtree(topic)
    return delays


def question(
    executor: Executor,
    scan: Scan,
    config: CacheConfig,
    stage: int,
    channel: Channel[ToTask],
    noted: Callable[[Callable[[], Any]], Any],
) -> int:
    """Read a few runs as a new task, and ask; return how many runs are left."""
    partition_read = executor.read(stage, scan, config)
    while noted(lambda: next(partition_read, None)) is not None:
        pass
    left: int = noted(lambda: ask(channel)).runs
    return left


def node_of(executor: Executor) -> int:
    """Find an executor's node; its loaders are younger."""
    pids = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if executor.marker in " ".join(process.info["cmdline"] or [])
    ]
    return min(pids)


def small_runs(count: int) -> tuple[Path, CacheConfig]:
    """A topic with a few runs more than that, each of one entry."""
    directory = Path(tempfile.mkdtemp())
    objects = synthetic_topic(
        TOPIC,
        (count + 200) * 2048,
        value_bytes=2048,
        batch_bytes=0,
        max_block_bytes=BLOCK_BYTES,
    )
    write_directory(directory, objects)
    return directory, replace(LONG, run_bytes=1024)


def large_runs() -> tuple[Path, CacheConfig]:
    """A topic of 1 GiB of values."""
    directory = Path(tempfile.mkdtemp())
    write_directory(directory, synthetic_topic(TOPIC, GIB, ledgers=4))
    return directory, LONG


if __name__ == "__main__":
    record.run("expiry", measure, ("pyarrow", "msgspec"))
