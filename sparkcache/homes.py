"""The home of each extent: the executor that loads it, keeps it and serves it.

Rendezvous hashing gives an extent to the executor with the highest weight for it, so
that all consumers find the same home without asking anybody. Alone it gives some
executors half as much again as others. So an executor that has more than its share of
the topic, up to this extent, is passed over. What comes later in a topic changes
nothing for what comes before. Shares are counted from the last extent at which counting
begins again, as its key decides: so what is removed from the beginning changes little
of what remains.

Homes have to stay where they are when executors join or leave. So they follow from
what happened: from the executors that there were at first, and from each change.
An executor that leaves gives up what it was home of, one that joins takes over its
share, and no other extent moves.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates"
(1998), and Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads"
(2018), where a change of the executors also moves extents between the others.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from sparkcache.model import Extent, Ledger

    Hashes = npt.NDArray[np.uint64]

_NOWHERE = -1
_COUNTED = 16  # extents of each executor, on average, until counting begins again
_MAX_WEIGHTS = 1 << 17  # at a time: they fit in the processor's cache


class Place(StrEnum):
    """Where a task reads: its partition may have a home, on its executor or not.

    An heir reads a partition whose home was lost meanwhile, and keeps it.
    """

    ANYWHERE = ""
    HOME = "home"
    HEIR = "heir"
    AWAY = "away"

    @property
    def reads_ahead(self) -> bool:
        """Whether the partitions that follow will be read there too."""
        return self in (Place.ANYWHERE, Place.HOME)


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor that is there, or was, while the application reads topics.

    Attributes:
        location: Where Spark is to run a task that prefers it: `executor_HOST_ID`.
        joined: The change with which it joined. The first executors join with change 0.
        left: The change with which it left; None if it is there.

    """

    location: str
    joined: int = 0
    left: int | None = None

    def is_there(self, change: int) -> bool:
        """Return whether it was there after a change."""
        return self.joined <= change and (self.left is None or self.left > change)


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of an extent that tasks have read for a plan.

    Attributes:
        location: That of the executor that holds it; empty if none does any longer.
        reads: How many of its planned reads are done, wherever that was.

    """

    location: str = ""
    reads: int = 0


NOT_HELD = Held()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The executors among which extents have their homes.

    Attributes:
        executors: The executors that are there, and those that left.
        held: What is known of extents that tasks have read for a plan, by their keys.
            It is empty as long as all was read at home, and no executor has changed.
            After that, an extent that is held stays where it is until the plan ends.

    """

    executors: tuple[Executor, ...] = ()
    held: dict[int, Held] = field(default_factory=dict)


NO_CLUSTER = Cluster()


def keys(extents: Iterable[tuple[Ledger, Extent]]) -> Hashes:
    """Return a key for each extent, as little-endian numbers of 64 bits.

    They depend on the objects, and not on which columns are read.
    """
    by_uri: dict[str, int] = {}
    objects, firsts = [], []
    for ledger, extent in extents:
        uri = ledger.object.uri
        if uri not in by_uri:
            by_uri[uri] = _hash(uri)
        objects.append(by_uri[uri])
        firsts.append(extent.first)
    begins = np.array(firsts, dtype=np.int64).view(np.uint64)
    return _mixed(np.array(objects, dtype=np.uint64) ^ _mixed(begins))


def homes(
    extents: Sequence[tuple[Ledger, Extent]],
    cluster: Cluster,
    *,
    is_part: bool = False,
) -> list[str]:
    """Return the location of the home of each extent; none without executors.

    Args:
        extents: All extents of a topic, in order.
        cluster: The executors.
        is_part: Whether there may be other extents in the topic. Then no executor is
            passed over, since that would depend on what was left out.

    """
    executors = cluster.executors
    if all(executor.left is not None for executor in executors):
        return []
    ordered = sorted(executors, key=lambda executor: executor.location)
    of_extents = keys(extents)
    placement = _Placement(
        of_extents,
        [extent.size_bytes for _, extent in extents],
        _hashes(executor.location for executor in ordered),
        is_part=is_part,
    )
    changes = {executor.joined for executor in ordered} | {
        executor.left for executor in ordered if executor.left is not None
    }
    before: list[int] = []
    for change in sorted(changes):
        present = [i for i, each in enumerate(ordered) if each.is_there(change)]
        placement.change(present, [each for each in present if each not in before])
        before = present
    return [
        cluster.held.get(key, NOT_HELD).location or ordered[home].location
        for key, home in zip(of_extents.tolist(), placement.homes, strict=True)
    ]


class _Placement:
    """The homes of a topic's extents, as indexes of executors, change after change."""

    def __init__(
        self,
        extents: Hashes,
        sizes: Sequence[int],
        executors: Hashes,
        *,
        is_part: bool,
    ) -> None:
        self._extents = extents
        self._sizes = sizes
        self._executors = executors
        self._is_part = is_part
        self.homes = [_NOWHERE] * len(sizes)
        self._begins: list[bool] = []

    def __repr__(self) -> str:
        return f"_Placement({len(self.homes)} extents)"

    def change(self, present: Sequence[int], joining: Sequence[int]) -> None:
        """Find homes for what has none any longer, and give their share to new ones."""
        if not present:
            self.homes = [_NOWHERE] * len(self.homes)
            self._begins = []
            return
        if not self._begins:  # counting begins at the same extents from now on
            interval = np.uint64(_COUNTED * len(present))
            self._begins = (self._extents % interval == 0).tolist()
        best = self._best_of_lost(present)
        best_joining = self._best_joining(joining)
        loads = np.zeros(len(self._executors))
        total = 0
        for index, (home, size_bytes) in enumerate(
            zip(self.homes, self._sizes, strict=True)
        ):
            if self._begins[index]:
                loads[:] = total = 0
            limit = math.inf if self._is_part else total / len(present)
            if index in best:
                home = best[index]
                if loads[home] > limit:
                    home = self._next_best(index, present, loads, limit)
            elif (index in best_joining or loads[home] > limit) and any(
                loads[new] <= limit for new in joining
            ):
                home = best_joining.get(index, home)
                if home not in joining or loads[home] > limit:
                    home = self._next_best(index, joining, loads, limit)
            self.homes[index] = home
            loads[home] += size_bytes
            total += size_bytes

    def _best_of_lost(self, present: Sequence[int]) -> dict[int, int]:
        """Return the best executor for each extent that has no home."""
        is_there = np.zeros(len(self._executors) + 1, dtype=bool)  # false for _NOWHERE
        is_there[present] = True
        lost = np.flatnonzero(~is_there[self.homes])
        best, _ = self._best(self._extents[lost], present)
        return dict(zip(lost.tolist(), best.tolist(), strict=True))

    def _best_joining(self, joining: Sequence[int]) -> dict[int, int]:
        """Return the best new executor of each extent that prefers it to its home."""
        if not joining:
            return {}
        best, weights = self._best(self._extents, joining)
        before = _mixed(self._extents ^ self._executors[self.homes])
        better = np.flatnonzero(weights > before)
        return dict(zip(better.tolist(), best[better].tolist(), strict=True))

    def _best(
        self, extents: Hashes, among: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], Hashes]:
        """Return the best of some executors for each extent, and its weight."""
        candidates = np.asarray(among)
        best = np.empty(len(extents), dtype=np.int64)
        highest = np.empty(len(extents), dtype=np.uint64)
        rows = max(1, _MAX_WEIGHTS // len(candidates))
        for begin in range(0, len(extents), rows):
            part = slice(begin, begin + rows)
            weights = _mixed(extents[part, None] ^ self._executors[None, candidates])
            columns = weights.argmax(axis=1)
            best[part] = candidates[columns]
            highest[part] = np.take_along_axis(weights, columns[:, None], 1)[:, 0]
        return best, highest

    def _next_best(
        self,
        index: int,
        among: Sequence[int],
        loads: npt.NDArray[np.float64],
        limit: float,
    ) -> int:
        """Return the best executor for an extent that is within the limit.

        If none is, the best of all is returned.
        """
        weights = _mixed(self._extents[index] ^ self._executors[among])
        is_within = loads[among] <= limit
        if is_within.any():
            weights = np.where(is_within, weights, np.uint64(0))
        return among[int(weights.argmax())]


def _hashes(names: Iterable[str]) -> Hashes:
    return np.array([_hash(name) for name in names], dtype=np.uint64)


def _hash(name: str) -> int:
    """Return the same number in every process, which `hash` does not."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _mixed(values: Hashes) -> Hashes:
    """Mix numbers in place, and return them: the finalizer of SplitMix64."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values
