"""A Service with readers and loaders around it that are driven step by step.

The topic has extents of runs of one entry, each of 1 MiB stored and one page decoded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from sparkcache import homes
from sparkcache.config import CacheConfig
from sparkcache.demand import Consumer, Plan
from sparkcache.demand import ReaderIdentity as ScanReader
from sparkcache.fetch import Load, RunSlice, Scan
from sparkcache.filters import Bounds, Filter, RunStatistics
from sparkcache.model import (
    Extent,
    Ledger,
    ObjectId,
    Position,
    ReadToken,
    Run,
    RunKey,
    Segment,
    Slot,
)
from sparkcache.node.events import (
    LoaderClosed,
    LoaderEnded,
    LoaderMessage,
    LoaderReady,
    TaskClosed,
    TaskMessage,
    Tick,
)
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    Cancel,
    Decoded,
    DecodedRun,
    DecodedTogether,
    Deny,
    Ended,
    EndPlans,
    Failed,
    Finish,
    Forget,
    FromLoader,
    Grant,
    GrantBundle,
    KeepAlive,
    LoadDirectly,
    Loaded,
    LoadedBundle,
    LoadedDirectly,
    Message,
    Open,
    Prepare,
    Served,
    ServedFromSegment,
    Skipped,
    Start,
    Streamed,
    Take,
    Unmap,
)
from sparkcache.node.reader_session import ReaderSession
from sparkcache.node.service import Service

if TYPE_CHECKING:
    from sparkcache.node.events import TaskRequest

SIZE = 4096
STORED = 1 << 20
RUNS = 100
ROOT = "memory://bucket"
TOPIC = "persistent://shop/eu/orders"
CONFIG = CacheConfig(max_bytes=1 << 30, request_timeout_s=60)
FAILURE = Failed("memory://bucket/0", 70, "a frame", "nothing")

Place = tuple[int, int]


def ledger(number: int) -> Ledger:
    return Ledger("fake", TOPIC, number, ObjectId(f"{ROOT}/{number}", 1000, "v1"))


def run_slice(number: int, start: int, stop: int, runs: int = RUNS) -> RunSlice:
    extent = Extent(0, runs - 1, 0, runs * STORED)
    every = tuple(Run(entry, entry) for entry in range(runs))
    return RunSlice(ledger(number), extent, every, start, stop)


def small_slice(number: int) -> RunSlice:
    """The only run of a small ledger."""
    return RunSlice(ledger(number), Extent(0, 0, 0, 1000), (Run(0, 0),), 0, 1)


def key(entry: int, number: int = 0) -> RunKey:
    return RunKey(ledger(number), Run(entry, entry))


def plan(name: str, *ends: int | None) -> Plan:
    """A plan with one consumer for each end, which reads from the beginning."""
    return Plan(
        name,
        tuple(
            Consumer(TOPIC, end=None if end is None else Position(0, end))
            for end in ends
        ),
    )


class FakePeer:
    """Records what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, int | None]] = []
        self.is_closed = False

    def send(self, message: Message, fd: int | None = None) -> None:
        if not self.is_closed:
            self.sent.append((message, fd))

    def close(self) -> None:
        self.is_closed = True


class FakeLoader(FakePeer):
    """Does its work one step at a time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._start: Start | None = None
        self._index = 0
        self._is_asking = False
        self._is_together = False
        self._written: set[int] = set()
        self.prepared: set[int] = set()
        self.segments: set[Segment] = set()
        world.loaders.append(self)

    def step(self) -> bool:
        """Say one thing to the node, if there is one to say."""
        self._look_ahead()
        if self._start is None:
            if not self.sent:
                return False
            message, _ = self.sent.pop(0)
            assert isinstance(message, Start)
            self.prepared.discard(message.number)
            self._start, self._index = message, 0
            self._is_together = message.together
            self._written.clear()
            self._world.loads.append(message)
            return True
        if self._is_asking:
            return self._obey()
        if self._is_together:
            self._is_asking = True
            self._decode_together()
        elif self._index == len(self._keys()):
            self._end()
        elif self._index in self._written:
            self._index += 1
            return self.step()
        elif self._index in self._start.skip:
            self.report(Skipped(self._index, self._offset()))
            self._index += 1
        else:
            self._is_asking = True
            self._world.decoded.append(self._keys()[self._index].run.first)
            self.report(Decoded(self._index, SIZE, self._offset()))
        return True

    def _keys(self) -> list[RunKey]:
        assert self._start is not None
        loads = (self._start.load, *self._start.more)
        return [RunKey(load.ledger, run) for load in loads for run in load.runs]

    def _decode_together(self) -> None:
        """Decode all small runs, except those of objects that are missing."""
        failed = [
            index
            for index, key in enumerate(self._keys())
            if key.ledger.id in self._world.missing
        ]
        self._written.update(failed)
        runs = [
            DecodedRun(index, SIZE, 0)
            for index in range(len(self._keys()))
            if index not in failed
        ]
        failures = tuple((index, FAILURE) for index in failed)
        self.report(DecodedTogether(tuple(runs), failures, 0, len(runs), 0, 0))

    def _look_ahead(self) -> None:
        """Prepare and forget loads, as the node has asked."""
        while self.sent and isinstance(self.sent[0][0], (Prepare, Forget, Unmap)):
            message, _ = self.sent.pop(0)
            match message:
                case Prepare():
                    assert message.number not in self.prepared
                    self.prepared.add(message.number)
                    self._world.prepared.append(message.load)
                case Forget():
                    self.prepared.remove(message.number)
                case Unmap():
                    gone = {it for it in self.segments if it.number in message.segments}
                    self.segments -= gone

    def report(self, message: FromLoader, fd: int | None = None) -> None:
        """Send the node a message."""
        self._world.service.handle(LoaderMessage(self, message, fd))

    def fail(self, failure: Failed = FAILURE) -> None:
        """Find that the storage does not deliver."""
        assert self.is_loading
        self.report(failure)
        self._end()

    def die(self) -> None:
        """Stop serving the node, but go on writing; see `end`."""
        self._world.loaders.remove(self)
        self._world.dying.append(self)
        self._world.service.handle(LoaderClosed(self))

    def end(self) -> None:
        """Write no more: the last thing that was written is not whole."""
        for message, _ in self.sent:
            if isinstance(message, Grant) and message.slot.segment is not None:
                self._world.write(message.slot, None)
        self._world.dying.remove(self)
        self._world.service.handle(LoaderEnded(self))

    @property
    def is_loading(self) -> bool:
        return self._start is not None and not self._is_asking

    @property
    def is_asking(self) -> bool:
        return self._is_asking

    def _statistics(self, index: int) -> RunStatistics | None:
        """Return statistics with the entries of a run as a column, an entry a row."""
        run = self._keys()[index].run
        if run.first > run.last:
            return None
        bounds = Bounds(run.first, run.last, 0)
        return RunStatistics(run.last - run.first + 1, {"entry": bounds})

    def _obey(self) -> bool:
        if not self.sent:
            return False
        self._is_asking = False
        answer, fd = self.sent.pop(0)
        if isinstance(answer, GrantBundle):
            self._is_together = False
            self._write_bundle(answer)
            return True
        index, self._index = self._index, self._index + 1
        if fd is not None:
            assert isinstance(answer, Grant)
            assert answer.slot.segment is not None
            self.segments.add(answer.slot.segment)
        match answer:
            case Grant():
                fd = self._put(answer.slot, index)
                self.report(Loaded(index, self._statistics(index)), fd)
                if answer.last:
                    self._end()
            case Deny():
                for _ in range(answer.readers):
                    self.report(Streamed(), self._world.create())
            case Cancel():
                self._end()
            case _:
                raise AssertionError(answer)
        return True

    def _write_bundle(self, grant: GrantBundle) -> None:
        """Write runs to memory that they share."""
        if not grant.indexes:
            return
        self._written.update(grant.indexes)
        keys = self._keys()
        fd = self._world.create(grant.size_bytes)
        self._world.bundles[fd] = {
            offset: keys[index]
            for index, offset in zip(grant.indexes, grant.offsets, strict=True)
        }
        assert max(grant.offsets) + SIZE <= grant.size_bytes
        statistics = tuple(RunStatistics(1, {}) for _ in grant.indexes)
        self.report(LoadedBundle(statistics), fd)

    def _put(self, slot: Slot, index: int) -> int | None:
        """Write a run where it was granted room."""
        if slot.segment is None:
            return self._world.create()
        assert slot.segment in self.segments
        self._world.write(slot, self._keys()[index])
        return None

    def _offset(self) -> int:
        return self._keys()[self._index].run.first * STORED

    def _end(self) -> None:
        self._start = None
        self.report(Ended(1, 0, 0))


class FakeLoaders:
    """Starts loaders, as long as it can.

    Attributes:
        most: How many loaders there may be; 0 at first.
        can_fork: Whether loaders can be started.
        can_last: Whether a loader may begin another load.

    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.most = 0
        self.can_fork = True
        self.can_last = True

    def can_start(self) -> bool:
        return len(self._world.loaders) < self.most

    def start(self) -> FakeLoader | None:
        if self.can_fork:
            return FakeLoader(self._world)
        self.most = 0  # for a while
        return None

    def release(self, peer: object) -> bool:
        if not self.can_last:
            assert isinstance(peer, FakeLoader)
            self._world.loaders.remove(peer)
        return self.can_last

    @property
    def size_bytes(self) -> int:
        return SIZE * len(self._world.loaders)


class Reader(FakePeer):
    """A task that asks for its runs one after another, as the real one does."""

    def __init__(self, world: World, scan: Scan) -> None:
        super().__init__()
        self._world = world
        self.session = ReaderSession(self)
        self._places = [
            (at, index)
            for at, part in enumerate(scan.slices)
            for index in range(part.start, part.stop)
        ]
        self._scan = scan
        self._every = list(self._places)
        self._asked = 0
        self._read: list[Place] = []
        self._placed: dict[Place, int | Slot] = {}
        self._segments: set[int] = set()
        self.answers: list[Message] = []
        self.mapped: dict[Place, int | Slot] = {}
        self.assigned: deque[Place] = deque()
        self.loaded: list[Place] = []
        self.offsets: list[int] = []
        self.is_gone = False

    def send(self, message: Message, fd: int | None = None) -> None:
        if self.is_closed:
            return
        super().send(message, fd)
        if isinstance(message, KeepAlive):
            assert self.is_waiting
            return
        place = self._places[self._asked - 1]
        match message:
            case Served():
                assert fd in self._world.open_fds
                self.mapped[place] = fd
                self._find_in_bundle(place, message, fd)
                message = Served(message.size_bytes)
            case LoadDirectly():
                self._obey(place, message)
            case ServedFromSegment():
                self._find(place, message, fd)
                message = Served(message.slots[0].size_bytes)
        self.answers.append(message)

    def _obey(self, place: Place, message: LoadDirectly) -> None:
        """Load what the node says, one after another, as each is asked for."""
        self.assigned.clear()
        for load in message.loads:
            assert load.is_within(self._scan)
            part = self._scan.slices[load.run_slice]
            assert load.offset == part.runs[load.begin].first * STORED
            self.assigned.extend(
                (load.run_slice, index) for index in range(load.first, load.stop)
            )
        assert self.assigned[0] == place
        self._load()

    def _load(self) -> None:
        at, index = self.assigned.popleft()
        self.loaded.append((at, index))
        self.offsets.append(self._scan.slices[at].runs[index].first * STORED)

    def report(self, *, gets: int = 0, received_bytes: int = 0) -> None:
        """Tell the node which of the runs that it loaded itself are read."""
        sizes = (SIZE,) * len(self.offsets)
        offsets, self.offsets = tuple(self.offsets), []
        self.send_node(LoadedDirectly(sizes, offsets, 0, gets, received_bytes))

    def _find_in_bundle(self, place: Place, message: Served, fd: int) -> None:
        places = self._every[self._every.index(place) :]
        found = list(zip(places, message.bundle, strict=False))
        assert len(found) == len(message.bundle)
        for (at, index), (offset, size_bytes) in found:
            key = self._scan.slices[at].key(index)
            assert self._world.bundles[fd][offset] == key
            assert size_bytes == SIZE
        self._placed = {each: fd for each, _ in found[1:]}

    def _find(self, place: Place, message: ServedFromSegment, fd: int | None) -> None:
        assert (fd is None) == (message.segment is None)
        if message.segment is not None:
            self._segments.add(message.segment)
        segments = {slot.segment for slot in message.slots}
        assert all(it is not None and it.number in self._segments for it in segments)
        places = self._every[self._every.index(place) :]
        self._placed = {}
        self._placed |= zip(places, message.slots, strict=False)
        self.mapped[place] = self._placed.pop(place)

    def check(self) -> None:
        """Assert that what is mapped, or could be at once, is what was written."""
        for place, found in (self.mapped | self._placed).items():
            if isinstance(found, Slot):
                at, index = place
                assert self._world.read_at(found) == self._scan.slices[at].key(index)

    @property
    def is_waiting(self) -> bool:
        return self._asked > len(self.answers)

    @property
    def is_refused(self) -> bool:
        return bool(self.answers) and not isinstance(
            self.answers[-1], (Served, Streamed, LoadDirectly)
        )

    @property
    def wants_more(self) -> bool:
        return not (self.is_gone or self.is_waiting or self.is_refused or self.is_done)

    @property
    def is_done(self) -> bool:
        return len(self.answers) == len(self._places)

    def skip(self, runs: int) -> None:
        """Leave out the next runs."""
        del self._places[self._asked : self._asked + runs]

    def ask(self) -> Message | None:
        """Ask for the next run; return the answer, if it comes at once."""
        last = self._places[max(self._asked - 1, 0) : self._asked]
        self._read += [place for place in last if place not in self.loaded]
        place = self._places[self._asked]
        self._asked += 1
        if self.assigned and self.assigned[0] == place:
            self._load()
            self.answers.append(self.answers[-1])
            return self.answers[-1]
        if self.offsets:
            self.report()
        if place in self._placed:
            self.mapped[place] = self._placed.pop(place)
            self.answers.append(Served(SIZE))
            return self.answers[-1]
        mapped = [place for place in self.mapped if place not in last]
        released = (*mapped, *self._placed)
        for gone in mapped:
            del self.mapped[gone]
        self._placed.clear()
        read, self._read = tuple(self._read), []
        self.send_node(Take(*place, read, released))
        return None if self.is_waiting else self.answers[-1]

    def send_node(self, message: TaskRequest) -> None:
        """Send the node a message."""
        self._world.service.handle(TaskMessage(self.session, message))

    def finish(self) -> None:
        """Say that the last run was read, too, and leave."""
        if self.offsets:
            self.report()
        last = self._places[max(self._asked - 1, 0) : self._asked]
        last = [place for place in last if place not in self.loaded]
        self.send_node(Finish((*self._read, *last)))
        self.leave()

    def leave(self) -> None:
        self.is_gone = True
        self.mapped.clear()
        self._placed.clear()
        self.close()
        self._world.readers.remove(self)
        self._world.service.handle(TaskClosed(self.session))


@dataclass
class World:
    """The service, its readers and its loaders.

    Attributes:
        tick_s: How far time goes on from one look at the clock to the next.
        loads: Every load that was begun.
        prepared: Every load that a loader was asked to prepare.
        decoded: First entries of the runs that were decoded, in order.
        open_fds: Descriptors that the service has not closed.
        fd_bytes: Size of each descriptor's memory.
        bundles: What lies in memory that runs share, by descriptor and offset.
        missing: Small ledgers that are not in the storage.
        content: What lies in segments, by number and offset.
        dying: Loaders that serve the node no more, and have not ended.

    """

    config: CacheConfig = CONFIG
    max_runs: int = 10_000
    now_s: float = 1000.0
    tick_s: float = 0.0
    loads: list[Start] = field(default_factory=list)
    prepared: list[Load] = field(default_factory=list)
    decoded: list[int] = field(default_factory=list)
    open_fds: set[int] = field(default_factory=set)
    fd_bytes: dict[int, int] = field(default_factory=dict)
    bundles: dict[int, dict[int, RunKey]] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    content: dict[int, dict[int, RunKey | None]] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    loaders: list[FakeLoader] = field(default_factory=list)
    dying: list[FakeLoader] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fds = count()
        self._stages = count()
        self.processes = FakeLoaders(self)
        self.service = Service(
            self.config.node,
            max_runs=self.max_runs,
            now=self._now,
            close_fd=self._close,
            loaders=self.processes,
        )

    def create(self, size_bytes: int = SIZE) -> int:
        """Make a descriptor that the service is going to own."""
        fd = next(self._fds)
        self.open_fds.add(fd)
        self.fd_bytes[fd] = size_bytes
        return fd

    def write(self, slot: Slot, key: RunKey | None) -> None:
        """Write a run into a segment, over whatever is there; None: parts of one."""
        assert slot.segment is not None
        number, size_bytes = slot.segment
        assert slot.offset + slot.size_bytes <= size_bytes
        content = self.content.setdefault(number, {})
        for offset in list(content):
            if slot.offset - SIZE < offset < slot.offset + SIZE:
                del content[offset]
        content[slot.offset] = key

    def read_at(self, slot: Slot) -> RunKey | None:
        """What lies there."""
        assert slot.segment is not None
        return self.content[slot.segment.number].get(slot.offset)

    def loader(self) -> FakeLoader:
        loader = FakeLoader(self)
        self.service.handle(LoaderReady(loader))
        return loader

    def reader(
        self,
        *slices: RunSlice,
        stage: int | None = None,
        plans: tuple[Plan, ...] = (),
        epoch: int = 0,
        settings: CacheConfig | None = None,
        part: int = 0,
        following: tuple[tuple[int, RunSlice], ...] = (),
        group: str = "",
        end: Position | None = None,
        authority: int = 0,
        filters: tuple[Filter, ...] = (),
        rows_only: bool = False,
        place: homes.Place = homes.Place.ANYWHERE,
        can_load: bool = False,
    ) -> Reader:
        stage = next(self._stages) if stage is None else stage
        scan = Scan(ROOT, self.config.storage, self.config.scan, slices)
        reader = Reader(self, scan)
        self.readers.append(reader)
        reader.send_node(
            Open(
                PROTOCOL_VERSION,
                scan,
                ScanReader(
                    ReadToken(stage, part, part),
                    "scan",
                    Consumer(TOPIC, end=end),
                    RUNS * STORED,
                ),
                epoch,
                self.service.config if settings is None else settings.node,
                plans,
                following,
                group,
                authority,
                filters,
                rows_only,
                place,
                can_load,
            ),
        )
        return reader

    def of(self, start: int, stop: int, **more: Any) -> Reader:
        """A reader of runs start..stop-1 of the first ledger."""
        return self.reader(run_slice(0, start, stop), **more)

    def settle(self) -> None:
        """Let the loaders do what they can do."""
        while any([loader.step() for loader in list(self.loaders)]):  # noqa: C419 - all
            self.service.check()

    def read(self, reader: Reader) -> list[Message]:
        """Have a reader read to its end; return the answers."""
        self.settle()
        while reader.wants_more:
            reader.ask()
            self.settle()
            assert not reader.is_waiting
        return reader.answers

    def loaded(self) -> list[tuple[int, int]]:
        """First and last entry of each load begun."""
        return [(s.load.runs[0].first, s.load.runs[-1].last) for s in self.loads]

    def request(self, message: TaskRequest, peer: FakePeer | None = None) -> None:
        """Send the node a message through a connection of its own."""
        session = ReaderSession(peer or FakePeer())
        self.service.handle(TaskMessage(session, message))

    def configure(self, config: CacheConfig) -> None:
        self.service.configure(config.node)

    def tick(self) -> None:
        self.service.handle(Tick())

    def end_plans(self, *ids: str) -> None:
        self.request(EndPlans(ids))

    def held(self) -> set[int]:
        """First entries of the runs of the first ledger that are served at once."""
        return {entry for entry in range(RUNS) if self.service.is_held(key(entry))}

    def advance(self, step_s: float) -> None:
        self.now_s += step_s
        while self.service.expire():
            self.service.check()
        self.service.handle(Tick())

    def memory_bytes(self) -> int:
        """What is in memory: held by the service, or mapped by a reader."""
        mapped = {
            found
            for reader in self.readers
            for found in reader.mapped.values()
            if isinstance(found, int)
        }
        own_bytes = sum(self.fd_bytes[fd] for fd in self.open_fds | mapped)
        return own_bytes + self.service._store._segments.size_bytes

    def _now(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def _close(self, fd: int) -> None:
        self.open_fds.remove(fd)  # KeyError if it was closed before


def knowing(*held: int) -> World:
    """A world where all offsets are known and these runs of 0..99 are held."""
    world = World()
    world.loader()
    for entry in (*range(RUNS), *held):
        reader = world.of(entry, entry + 1)
        reader.ask()
        world.settle()
        reader.leave()
        if entry == RUNS - 1:
            world.configure(replace(CONFIG, max_bytes=0))
            world.configure(CONFIG)
            assert world.held() == set()
    assert world.held() == set(held)
    world.loads.clear()
    world.decoded.clear()
    return world
