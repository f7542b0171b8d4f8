"""What a node does for a hit, without sockets: a Take decoded, handled, answered.

A scan of `SLICES` extents of 100 runs each, planned for consumers to come, reads runs
that are all held, and returns what it has read as the real one does. Processor time;
the least of the rounds, each of which is another scan.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

from msgspec.msgpack import Decoder, encode

from sparkcache.node import channel
from sparkcache.node.events import TaskMessage
from sparkcache.node.messages import Finish, Served, Take
from tests.unit.node.node_world import FakePeer, World, plan, run_slice

if TYPE_CHECKING:
    from sparkcache.demand import Plan
    from sparkcache.fetch import RunSlice
    from sparkcache.node.messages import Message
    from tests.unit.node.node_world import Place

ROUNDS = 15
SLICES = 10
SLICE_RUNS = 100


def ns_node_hit() -> int:
    """Return the nanoseconds of a hit."""
    planned = plan("plan", *([None] * (ROUNDS + 3)))
    world = World(max_runs=100_000)
    world.loader()
    slices = [run_slice(number, 0, SLICE_RUNS) for number in range(SLICES)]
    fill(world, planned, slices)
    runs = SLICES * SLICE_RUNS
    waits = [hits(world, planned, slices) for _ in range(ROUNDS + 1)]
    return round(min(waits[1:]) / runs * 1e9)


def fill(world: World, planned: Plan, slices: list[RunSlice]) -> None:
    """Have all runs held."""
    reader = world.reader(*slices, plans=(planned,))
    while reader.wants_more:
        reader.ask()
        while world.loaders[0].step():
            pass
    assert reader.is_done, reader.answers[-1]
    reader.finish()


def hits(world: World, planned: Plan, slices: list[RunSlice]) -> float:
    """Let another scan read all runs; return the seconds that the node takes."""
    reader = world.reader(*slices, plans=(planned,))
    session, answers = reader.session, Answers()
    session.peer = answers
    places = [
        (at, index)
        for at, part in enumerate(slices)
        for index in range(part.start, part.stop)
    ]
    frames = [encode(take) for take in takes(places)]
    decoder, handle = Decoder(Take), world.service.handle
    gc.collect()
    gc.disable()
    try:
        start_s = time.process_time()
        for frame in frames:
            handle(TaskMessage(session, decoder.decode(frame)))
        took_s = time.process_time() - start_s
    finally:
        gc.enable()
    assert answers.served == len(places)
    session.peer = reader
    reader.send_node(Finish((places[-1],), tuple(places[-2:])))
    reader.leave()
    return took_s


def takes(places: list[Place]) -> list[Take]:
    """List what a task asks: it returns the run before, and unmaps that before it."""
    return [
        Take(*place, tuple(places[at - 1 : at]), tuple(places[at - 2 : at - 1]))
        if at > 1
        else Take(*place, tuple(places[:at]), ())
        for at, place in enumerate(places)
    ]


class Answers(FakePeer):
    """Encodes what it is sent, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.served = 0

    def send(self, message: Message, fd: int | None = None) -> None:
        """Take an answer."""
        channel._frame(message, fd)
        self.served += isinstance(message, Served)
