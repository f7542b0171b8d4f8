"""Times to live in 120,000 random steps: the same as a dictionary of deadlines."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest

from sparkcache.cache import RunCache, Ttl
from sparkcache.model import RunKey
from tests.unit.cache.cache_cases import ROOMY, key, put

SEEDS = 24
STEPS = 5_000
KEYS = [key(index, topic="ab"[index % 2]) for index in range(16)]
STEPS_S = (0, 0.25, 0.25, 0.5, 1, 1, 2, 5)
TTLS = (
    Ttl(18, 1, 18),
    Ttl(3, 7, 3),
    Ttl(5, 5, 5),
    Ttl(4, None, 4),
    Ttl(6, 4, 6, max_life_s=9),
    Ttl(2, 20, 2, max_life_s=5),
    Ttl(inf, 3, 3, max_life_s=12),
)


class Deadlines:
    """What each run's time is, by the letter; nothing is ever removed."""

    def __init__(self, ttl: Ttl) -> None:
        self._ttl = ttl
        self._deadline_s: dict[RunKey, float] = {}
        self._end_s: dict[RunKey, float] = {}

    def put(self, where: RunKey, now_s: float) -> None:
        self._deadline_s[where] = now_s + self._ttl.create_s
        self._end_s[where] = now_s + self._ttl.max_life_s

    def read(self, where: RunKey, now_s: float) -> None:
        if self._ttl.after_read_s is not None and self.has(where, now_s):
            self._deadline_s[where] = now_s + self._ttl.after_read_s

    def has(self, where: RunKey, now_s: float) -> bool:
        ends_s = (self._deadline_s.get(where, -inf), self._end_s.get(where, -inf))
        return now_s < min(ends_s)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_sequence_of_steps(seed: int) -> None:
    chosen = random.Random(seed)
    ttl = TTLS[seed % len(TTLS)]
    cache: RunCache[str] = RunCache(replace(ROOMY, ttl=ttl))
    model, now_s = Deadlines(ttl), 0.0
    for step in range(STEPS):
        where = chosen.choice(KEYS)
        match chosen.randrange(6):
            case 0:
                put(cache, where, now_s=now_s)
                model.put(where, now_s)
            case 1:
                held = cache.get(where, now_s) is not None
                assert held == model.has(where, now_s)
                model.read(where, now_s)
            case 2:
                held = cache.mark_read(where, now_s) is not None
                assert held == model.has(where, now_s)
                model.read(where, now_s)
            case 3:
                now_s += chosen.choice(STEPS_S)
            case 4:
                for run in cache.expire(now_s, chosen.choice((1, 2, inf))):
                    assert not model.has(run.key, now_s)
            case 5:
                cache.runs()
                cache.keys_of("a")
                cache.next_deadline_s()
        alive = [model.has(where, now_s) for where in KEYS]
        assert [cache.peek(where, now_s) is not None for where in KEYS] == alive
        if not cache.has_overdue(now_s):
            assert len(cache) == sum(alive)
        if step % 100 == 0:
            cache.check()
