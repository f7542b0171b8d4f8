"""Any order of what readers, loaders, plans and time do leaves a node in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from sparkcache.fetch import RunSlice
from sparkcache.metrics import TopicMetrics
from sparkcache.model import Position
from sparkcache.node.offsets import Offsets
from tests.effort import tries
from tests.unit.node.node_world import (
    CONFIG,
    SIZE,
    FakeLoader,
    Reader,
    World,
    plan,
    run_slice,
    small_slice,
)

RUNS = 8
PLANS = {name: plan(name, *ends) for name, ends in {"a": (None,), "b": (3, 6)}.items()}
STREAM = "run/query/stream"

ENGINES: dict[str, dict[str, Any]] = {
    "runs": {"engine": "runs"},
    "ring": {"engine": "ring", "segment_bytes": 4 * SIZE},
    "lists": {"engine": "ring", "segment_bytes": 4 * SIZE, "copy_entries": False},
}

small_slices = st.integers(10, 17).map(small_slice)
slices = st.tuples(
    st.integers(0, 2), st.integers(0, RUNS - 1), st.integers(0, RUNS - 1)
).map(lambda at: run_slice(at[0], min(at[1:]), max(at[1:]) + 1, runs=RUNS))


class ServiceMachine(RuleBasedStateMachine):
    """In the end every reader that waits has got an answer, and nothing is left."""

    readers = Bundle("readers")

    @initialize(
        max_runs=st.sampled_from([3, 1000]),
        offsets=st.sampled_from([2, 1000]),
        loaders=st.integers(0, 3),
        pass_runs=st.sampled_from([1, 2, 1000]),
        engine=st.sampled_from(sorted(ENGINES)),
    )
    def begin(
        self, max_runs: int, offsets: int, loaders: int, pass_runs: int, engine: str
    ) -> None:
        self.config = replace(CONFIG, **ENGINES[engine])
        self.world = World(self.config, max_runs=max_runs)
        self.world.service._store._pass_runs = pass_runs
        self.world.service._loads._offsets = Offsets(offsets)
        for _ in range(loaders):
            self.world.loader()

    @rule(
        target=readers,
        parts=st.lists(
            slices, min_size=1, max_size=3, unique_by=lambda part: part.ledger
        )
        | st.lists(
            small_slices, min_size=2, max_size=6, unique_by=lambda part: part.ledger
        ),
        stage=st.integers(0, 3),
        plans=st.sets(st.sampled_from(sorted(PLANS))),
        part=st.integers(0, 3),
        following=st.lists(slices, max_size=3),
        can_load=st.booleans(),
    )
    def open(
        self,
        parts: list[RunSlice],
        stage: int,
        plans: set[str],
        part: int,
        following: list[RunSlice],
        can_load: bool,
    ) -> Reader:
        return self.world.reader(
            *parts,
            stage=stage,
            plans=tuple(PLANS[name] for name in sorted(plans)),
            part=part,
            following=tuple(enumerate(following, part + 1)),
            can_load=can_load,
        )

    @rule(target=readers, part=slices, stage=st.integers(4, 6))
    def open_batch(self, part: RunSlice, stage: int) -> Reader:
        """Begin a batch of a stream, or one that was before."""
        stream = replace(plan(STREAM, None), batch=stage)
        end = Position(part.ledger.id, part.stop)
        return self.world.reader(part, stage=stage, plans=(stream,), end=end)

    @rule(reader=readers)
    def ask(self, reader: Reader) -> None:
        if reader.wants_more:
            reader.ask()

    @rule(missing=st.sets(st.integers(10, 17), max_size=2))
    def remove_objects(self, missing: set[int]) -> None:
        self.world.missing = missing

    @rule(reader=readers, runs=st.integers(1, 3))
    def skip(self, reader: Reader, runs: int) -> None:
        if reader.wants_more:
            reader.skip(runs)

    @rule(reader=consumes(readers), is_done=st.booleans())
    def leave(self, reader: Reader, is_done: bool) -> None:
        if is_done and not reader.is_waiting:
            reader.finish()
        else:
            reader.leave()

    @rule(data=st.data(), steps=st.integers(1, 9))
    @precondition(lambda self: self.world.loaders)
    def load(self, data: st.DataObject, steps: int) -> None:
        loader = self._loader(data)
        for _ in range(steps):
            if not loader.step():
                break
            self.world.service.check()

    @rule(data=st.data())
    @precondition(lambda self: self.world.loaders)
    def fail(self, data: st.DataObject) -> None:
        loader = self._loader(data)
        if loader.is_loading:
            loader.fail()

    @rule(data=st.data())
    @precondition(lambda self: self.world.loaders)
    def die(self, data: st.DataObject) -> None:
        self._loader(data).die()

    @rule(data=st.data())
    @precondition(lambda self: self.world.dying)
    def end(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.world.dying)).end()

    @rule(most=st.integers(0, 3), can_fork=st.booleans(), can_last=st.booleans())
    def limit_loaders(self, most: int, can_fork: bool, can_last: bool) -> None:
        processes = self.world.processes
        processes.most, processes.can_fork = most, can_fork
        processes.can_last = can_last
        self._advance(0)

    @rule()
    @precondition(lambda self: len(self.world.loaders) < 3)
    def start_loader(self) -> None:
        self.world.loader()

    @rule()
    def retire_loader(self) -> None:
        loader = self.world.service.retire_loader()
        if loader is not None:
            assert isinstance(loader, FakeLoader)
            self.world.loaders.remove(loader)

    @rule(name=st.sampled_from([*sorted(PLANS), "run"]))
    def end_plan(self, name: str) -> None:
        self.world.end_plans(name)

    @rule(
        runs=st.sampled_from([0, 1, 3, 100]),
        ahead=st.sampled_from([0, 2, 100]),
        drop=st.booleans(),
        ttl_s=st.sampled_from([0.0, 10.0]),
        max_life_s=st.sampled_from([0, 15]),
        engine=st.none() | st.none() | st.sampled_from(sorted(ENGINES)),
    )
    def configure(
        self,
        runs: int,
        ahead: int,
        drop: bool,
        ttl_s: float,
        max_life_s: float,
        engine: str | None,
    ) -> None:
        if engine is not None:
            self.config = replace(CONFIG, **ENGINES[engine])
        config = replace(
            self.config,
            max_bytes=runs * SIZE,
            read_ahead_bytes=ahead * SIZE,
            drop_after_last_read=drop,
            ttl_create_s=ttl_s,
            ttl_after_read_s=ttl_s,
            ttl_s=ttl_s,
            max_life_s=max_life_s,
        )
        self.world.configure(config)

    @rule(step_s=st.floats(0, 100))
    def expire(self, step_s: float) -> None:
        """One pass, which may leave some of it to the next."""
        self.world.now_s += step_s
        self.world.service.expire()

    @rule(step_s=st.floats(0, 100))
    def wait(self, step_s: float) -> None:
        self._advance(step_s)

    @invariant()
    def is_in_order(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.service.check()
        for reader in world.readers:
            reader.check()
        metrics = world.service.metrics()
        assert world.memory_bytes() <= metrics.held_bytes
        cached = world.service._store._runs.runs()
        assert metrics.prefetched_unread == sum(run.unread for run in cached)
        assert metrics.kept_bytes == metrics.runs * SIZE <= metrics.held_bytes
        topic = sum(world.service.topic_metrics(), TopicMetrics())
        for name in ("requests", "served_bytes", "loads", "inserts", "runs"):
            assert getattr(topic, name) == getattr(metrics, name)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.processes.can_last = True
        if not world.loaders:
            world.loader()
        while True:
            world.settle()
            assert not any(reader.is_waiting for reader in world.readers)
            ready = [reader for reader in world.readers if reader.wants_more]
            if not ready:
                break
            for reader in ready:
                reader.ask()
        for reader in list(world.readers):
            reader.finish()
        for loader in list(world.dying):
            loader.end()  # whose memory a waiting loader may be granted
        world.settle()
        world.configure(replace(self.config, max_bytes=0))
        world.advance(0)
        assert world.service.metrics().held_bytes == 0
        assert world.service.metrics().runs == 0
        assert world.open_fds == set()
        world.service.stop()

    def _advance(self, step_s: float) -> None:
        self.world.advance(step_s)
        for loader in list(self.world.loaders):
            if loader.is_closed:
                loader.die()

    def _loader(self, data: st.DataObject) -> FakeLoader:
        at = data.draw(st.integers(0, len(self.world.loaders) - 1))
        return self.world.loaders[at]


TestService = ServiceMachine.TestCase
TestService.settings = settings(max_examples=tries(75), stateful_step_count=40)
