"""Every order of what two readers and a loader do, crashes included, up to a depth.

The readers overlap in a run. The orders are tried breadth first, each from the start,
and not continued from a state that another order has led to already. In every state:

    the invariants of the service hold: each run that is loaded has one load job, and
    each session that waits is a waiter of one
    once the loader, or the one that replaces it, has worked, no reader waits
    once the readers have read on and left, nothing is held and no descriptor is open
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.homes import Place
from sparkcache.node.messages import Refused
from tests.unit.node.node_world import (
    CONFIG,
    SIZE,
    FakeLoader,
    Reader,
    World,
    run_slice,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from sparkcache.node.load_job import LoadJob

RUNS = 3
SLICES = {"A": run_slice(0, 0, 2, RUNS), "B": run_slice(0, 1, 3, RUNS)}
BEGINNING = ("open A", "ask A")
LATE_S = CONFIG.request_timeout_s + 1

AWAY = pytest.mark.parametrize(
    "away", ["", "B", "AB"], ids=["at home", "one away", "both away"]
)
ROOM = pytest.mark.parametrize(
    "room",
    [
        pytest.param(RUNS, id="room for all runs"),
        pytest.param(1, id="room for one run"),
        pytest.param(0, id="room for none"),
    ],
)


class Model:
    """A node with readers and a loader, after some actions.

    The readers named in `away` read what has its home elsewhere.
    """

    def __init__(self, room: int, away: str, actions: tuple[str, ...]) -> None:
        self._away = away
        self._world = World(replace(CONFIG, max_bytes=room * SIZE))
        self._readers: dict[str, Reader] = {}
        self._loader: FakeLoader | None = self._world.loader()
        self._done = actions
        for action in (*BEGINNING, *actions):
            self._do(action)
        self._world.service.check()
        held_bytes = self._world.service.metrics().held_bytes
        assert self._world.memory_bytes() <= held_bytes <= room * SIZE

    def possible(self) -> Iterator[str]:
        """Yield the actions that can be next. Everybody crashes once at most."""
        for name in SLICES:
            reader = self._readers.get(name)
            if reader is None:
                yield f"open {name}"
                continue
            if reader.wants_more:
                yield f"ask {name}"
            if reader.is_done and not reader.is_gone:
                yield f"finish {name}"
            elif not reader.is_gone:
                yield f"crash {name}"
        if self._loader is None:
            yield "replace"
        elif self._loader.sent or self._loader.is_loading:
            yield "load"
        if self._loader is not None and "crash" not in self._done:
            yield "crash"
        if self._world.dying:
            yield "end"
        if "late" not in self._done:
            yield "late"

    def _do(self, action: str) -> None:
        world, loader = self._world, self._loader
        match action.split():
            case ["open", name]:
                place = Place.AWAY if name in self._away else Place.HOME
                self._readers[name] = world.reader(SLICES[name], place=place)
            case ["ask", name]:
                self._readers[name].ask()
            case ["finish", name]:
                self._readers[name].finish()
            case ["crash", name]:
                self._readers[name].leave()
            case ["replace"]:
                self._loader = world.loader()
            case ["load"]:
                assert loader is not None
                loader.step()
            case ["crash"]:
                self._crash()
            case ["end"]:
                world.dying[0].end()
            case ["late"]:
                world.advance(LATE_S)
                if loader is not None and loader.is_closed:
                    self._crash()

    def _crash(self) -> None:
        assert self._loader is not None
        self._loader.die()
        self._loader = None

    def state(self) -> Hashable:
        """What distinguishes this state from others, in all that matters next."""
        service = self._world.service
        loads, loader = service._loads, self._loader
        names = {reader.session: name for name, reader in self._readers.items()}
        jobs = [("queued", *self._job(job, names)) for job in loads._queue]
        jobs += [("busy", *self._job(job, names)) for job in loads._busy.values()]
        return (
            tuple(
                (name, it.is_gone, it._asked, tuple(map(type, it.answers)))
                for name, it in sorted(self._readers.items())
            ),
            None
            if loader is None
            else (
                loader._start and loader._start.number - len(self._world.loads),
                loader._index,
                loader.is_asking,
                tuple((type(message), str(message)) for message, _ in loader.sent),
            ),
            len(self._world.dying),
            tuple(jobs),
            tuple((run.key.run.first, run.pins) for run in service._store._runs.runs()),
            service.metrics().in_flight_bytes,
            tuple(self._done.count(once) for once in ("crash", "late")),
            tuple(
                (scan.window.bytes, len(scan.sessions))
                for scan in service._readers._scans.values()
            ),
        )

    def _job(self, job: LoadJob, names: dict[Any, str]) -> tuple[Hashable, ...]:
        return (
            *(job.load.runs, job.skip, job.next, job.attempt, job.is_ending),
            *(job.pending, job.granted, job.loader is None),
            tuple(
                (index, tuple(names[session] for session in sessions))
                for index, sessions in sorted(job.waiters.items())
            ),
            tuple(session and names[session] for session in job.streams),
        )

    def end(self) -> None:
        """Let all of them come to their end."""
        world = self._world
        if self._loader is None:
            self._loader = world.loader()
        world.settle()
        for reader in list(world.readers):
            assert not reader.is_waiting, "nobody answers it"
            while reader.wants_more:
                reader.ask()
                world.settle()
                assert not reader.is_waiting, "nobody answers it"
            assert reader.is_done or isinstance(reader.answers[-1], Refused)
            reader.finish()
        for loader in list(world.dying):
            loader.end()
        world.settle()
        world.configure(replace(CONFIG, max_bytes=0))
        world.advance(0)
        assert world.service.metrics().held_bytes == 0
        assert not world.open_fds
        assert len(world.service._loads) == 0
        world.service.stop()


def explore(room: int, away: str, depth: int) -> int:
    """Try every order of at most `depth` actions; return how many states there are."""
    queue: deque[tuple[str, ...]] = deque([()])
    seen: set[Hashable] = set()
    while queue:
        actions = queue.popleft()
        try:
            model = Model(room, away, actions)
            state = model.state()
            if state in seen:
                continue
            seen.add(state)
            if len(actions) < depth:
                queue.extend((*actions, action) for action in model.possible())
            model.end()
        except BaseException as error:
            error.add_note(" -> ".join(actions))
            raise
    return len(seen)


@AWAY
@ROOM
def test_every_order_of_some_actions(
    room: int, away: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    assert explore(room, away, depth=6) > 400


@pytest.mark.long
@AWAY
@ROOM
def test_every_order_of_many_actions(
    room: int, away: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    explore(room, away, depth=14)
