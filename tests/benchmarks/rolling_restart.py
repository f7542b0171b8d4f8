"""The scenario with which PIP-430 was measured: rolling restarts under load.

As in the test of Pulsar's PR 24623: one topic of 10 partitions, 50,000 messages a
second in all for 30 s, entries of 8 KiB, 10 consumers with a subscription each that all
read all partitions, 250 MB of cache, and 3 restarts of brokers, of two, 7.5 s apart.
Producing pauses while 500,000 messages are on their way, counting each once for each
consumer. The hit rate is the share of messages consumed for which no entry was read
from storage. Published: 98.4 % with PIP-430, and 76.85, 59.97 and 52.09 % with what was
before.

What the test leaves to the machine, here is set:

- All partitions are of one broker, as the test's single bundle suggests; when it is
  restarted they move to the other one, and are away for half a second. What it held is
  lost: for the new broker, what was written before is another ledger.
- A consumer comes back 20 to 40 ms later, and its last 200 messages of the partition,
  received and not acknowledged, are sent again.
- A consumer gets 36,000 to 80,000 messages a second, another number in each second: so
  they fall behind, catch up, and drift apart. This is the one thing that the
  rates depend on, and it is set so that PIP-430's own policy comes to what was
  published for it.
- A run is 50 entries, so that all of it takes minutes and not hours.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sparkcache.cache import Policy, Settings, Ttl
from sparkcache.demand import Consumer, ExtentOffset, Plan, ReaderIdentity
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey
from sparkcache.simulate import belady, simulate
from sparkcache.trace import Begin, Close, Open, Put, Read, Sizes, Take, Trace

if TYPE_CHECKING:
    from sparkcache.trace import Event

PARTITIONS = 10
CONSUMERS = 10
SECONDS = 30
STEPS_A_SECOND = 100
RUN_ENTRIES = 50
RUN_BYTES = RUN_ENTRIES * 8192
RUNS_A_STEP = 50_000 // STEPS_A_SECOND // PARTITIONS // RUN_ENTRIES  # of a partition
CACHE_BYTES = 250 << 20
MOST_IN_FLIGHT = 500_000 // RUN_ENTRIES
RESTARTS_S = (7.5, 15.0, 22.5)
AWAY_S = 0.5
SPEEDS = (36_000, 80_000)
RESENT_RUNS = 200 // RUN_ENTRIES
PULSAR_TTL = Ttl(create_s=1.0, after_read_s=None, expected_s=1.0)
OUR_TTL = Ttl(create_s=180.0, after_read_s=10.0, expected_s=3600.0)
ALL_RUNS = SECONDS * STEPS_A_SECOND * RUNS_A_STEP


def hit_rates() -> dict[str, float]:
    """Return the hit rate of each policy, and MIN's."""
    trace = Restarts().trace
    settings = {
        "next-read": (Policy.NEXT_READ, OUR_TTL),
        "expected-reads, Pulsar's 1 s": (Policy.EXPECTED_READS, PULSAR_TTL),
        "expected-reads, our 1 h": (Policy.EXPECTED_READS, OUR_TTL),
        "LRU": (Policy.LRU, OUR_TTL),
    }
    rates = {
        name: simulate(trace, Settings(CACHE_BYTES, 10**9, ttl, policy)).hit_rate
        for name, (policy, ttl) in settings.items()
    }
    rates["MIN"] = belady(trace, CACHE_BYTES).hit_rate
    return {name: round(rate, 4) for name, rate in rates.items()}


class Restarts:
    """Produces and consumes, step by step."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self.trace = Trace()
        self._now_s = 0.0
        self._brokers = [0] * PARTITIONS  # how often each partition has moved
        self._written = [0] * PARTITIONS
        self._at = [[0] * PARTITIONS for _ in range(CONSUMERS)]
        self._back_s = [[0.0] * PARTITIONS for _ in range(CONSUMERS)]
        self._tasks: dict[tuple[int, int], int] = {}
        self._opened = 0
        self._moved_at = [0] * PARTITIONS
        topics = [Consumer(f"partition-{n}") for n in range(PARTITIONS)]
        self._happens(Begin(Plan("plan", tuple(topics * CONSUMERS))))
        for step in range(SECONDS * STEPS_A_SECOND):
            self._now_s = step / STEPS_A_SECOND
            if step % STEPS_A_SECOND == 0:
                self._speeds = [self._rng.uniform(*SPEEDS) for _ in range(CONSUMERS)]
            if self._now_s in RESTARTS_S:
                self._restart()
            self._produce()
            for consumer in self._rng.sample(range(CONSUMERS), CONSUMERS):
                self._consume(consumer)

    def _happens(self, event: Event) -> None:
        self.trace.events.append((self._now_s, event))

    def _restart(self) -> None:
        for partition in range(PARTITIONS):
            self._brokers[partition] += 1
            self._moved_at[partition] = self._written[partition]
            for consumer in range(CONSUMERS):
                task = self._tasks.pop((consumer, partition), None)
                if task is not None:
                    self._happens(Close(task))
                at = self._at[consumer]
                at[partition] = max(at[partition] - RESENT_RUNS, 0)
                back_s = self._now_s + AWAY_S + self._rng.uniform(0.02, 0.04)
                self._back_s[consumer][partition] = back_s

    def _produce(self) -> None:
        in_flight = sum(
            self._written[partition] - at[partition]
            for at in self._at
            for partition in range(PARTITIONS)
        )
        if in_flight >= MOST_IN_FLIGHT:
            return
        for partition in range(PARTITIONS):
            if self._is_away(partition):
                continue
            for _ in range(RUNS_A_STEP):
                number = self._written[partition]
                self._written[partition] += 1
                self._happens(Put(self._key(partition, number)))

    def _is_away(self, partition: int) -> bool:
        return min(at[partition] for at in self._back_s) > self._now_s

    def _consume(self, consumer: int) -> None:
        runs = self._speeds[consumer] / STEPS_A_SECOND / RUN_ENTRIES
        whole = int(runs) + (self._rng.random() < runs % 1)
        order = self._rng.sample(range(PARTITIONS), PARTITIONS)
        for partition in order * (whole // PARTITIONS + 1):
            if whole and self._read(consumer, partition):
                whole -= 1

    def _read(self, consumer: int, partition: int) -> bool:
        """Read a run, if there is one and the consumer is connected."""
        number = self._at[consumer][partition]
        if number >= self._written[partition]:
            return False
        if self._back_s[consumer][partition] > self._now_s:
            return False
        task = self._tasks.get((consumer, partition))
        if task is None:
            task = self._open(consumer, partition)
        key = self._key(partition, number)
        self._happens(Take(task, key))
        self._happens(Read(task, key))
        self._at[consumer][partition] += 1
        return True

    def _open(self, consumer: int, partition: int) -> int:
        task = self._tasks[consumer, partition] = self._opened
        self._opened += 1
        whole = ExtentOffset(0, 0, ALL_RUNS - 1, 0.0, ALL_RUNS * RUN_BYTES)
        reader = ReaderIdentity(
            ReadToken(consumer, partition),
            f"{consumer}",
            Consumer(f"partition-{partition}"),
            whole.size_bytes,
        )
        first = Position(0, self._at[consumer][partition])
        stop = Position(0, ALL_RUNS)
        self._happens(Open(task, reader, ("plan",), (whole,), first, stop))
        return task

    def _key(self, partition: int, number: int) -> RunKey:
        moves = self._brokers[partition]
        before = moves and number < self._moved_at[partition]
        version = f"{moves}, before" if before else f"{moves}"
        key = RunKey(
            Ledger("", f"partition-{partition}", 0, ObjectId("", 0, version)),
            Run(number, number),
        )
        self.trace.runs.setdefault(key, Sizes(RUN_BYTES, RUN_BYTES))
        return key


if __name__ == "__main__":
    for name, rate in hit_rates().items():
        print(f"{name:30} {rate:.2%}")
