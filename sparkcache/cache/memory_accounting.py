"""The memory that is held, in bytes and runs: the other half of a hard limit.

Memory belongs to a run from before it is loaded until its last reader unmaps it, so
four sums make up the memory that is held:

    reserved    runs about to be created
    kept        runs that look-ups find
    lent        runs that look-ups no longer find but readers still map
    idle        runs that are gone, in a bundle with others that are kept or lent

The pinned part of the kept runs is counted separately: evicting it would free nothing.

Source: Pulsar's wrappers charge an entry until it is evicted (PIP-430). Different here:
until it is released, because only then does the kernel get its pages back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcache.cache.cached_run import Residency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.cache.cached_run import Bundle, CachedRun


@dataclass(slots=True)
class Sum:
    """A number of runs and their total bytes."""

    bytes: int = 0
    runs: int = 0

    def add(self, size_bytes: int) -> None:
        """Add one run of this size."""
        self.bytes += size_bytes
        self.runs += 1

    def take(self, size_bytes: int) -> None:
        """Subtract one run of this size."""
        self.bytes -= size_bytes
        self.runs -= 1


class MemoryAccounting:
    """Sums between which runs move; `held` changes only at reserving and releasing.

    Attributes:
        files: How many files the memory is in: one for each bundle, and one for each
            other run.

    """

    def __init__(self) -> None:
        self.held = Sum()
        self.reserved = Sum()
        self.kept = Sum()
        self.lent = Sum()
        self.idle = Sum()
        self.files = 0
        self.pinned = Sum()
        self._reservations: dict[int, int] = {}  # number by size

    def __repr__(self) -> str:
        return (
            f"<{self.held.bytes} bytes: {self.kept.bytes} kept, "
            f"{self.reserved.bytes} reserved, {self.lent.bytes} lent, "
            f"{self.idle.bytes} idle>"
        )

    def could_fit(self, size_bytes: int, max_bytes: int, max_runs: int) -> bool:
        """Return whether a run fits once every evictable run is evicted.

        It may not if a reader maps a run of a bundle.
        """
        reserved, lent, pinned = self.reserved, self.lent, self.pinned
        return (
            reserved.bytes + lent.bytes + pinned.bytes + size_bytes <= max_bytes
            and reserved.runs + lent.runs + pinned.runs + 1 <= max_runs
        )

    def reserve(self, size_bytes: int) -> None:
        """Charge a run that is about to be created."""
        self._reservations[size_bytes] = self._reservations.get(size_bytes, 0) + 1
        self.reserved.add(size_bytes)
        self.held.add(size_bytes)
        self.files += 1

    def unreserve(self, size_bytes: int) -> None:
        """Return an unused reservation."""
        self._take_reservation(size_bytes)
        self.held.take(size_bytes)
        self.files -= 1

    def divide(self, size_bytes: int, sizes: Sequence[int]) -> None:
        """Turn a reservation into those of the runs of a bundle, which has its size."""
        if sum(sizes) != size_bytes:
            raise ValueError(f"runs of {sum(sizes)} in a bundle of {size_bytes} bytes")
        self.unreserve(size_bytes)
        for part_bytes in sizes:
            self.reserve(part_bytes)
        self.files += 1 - len(sizes)

    def waste(self, size_bytes: int, bundle: Bundle) -> None:
        """Note that the run of a part of a bundle is kept already, elsewhere."""
        self._take_reservation(size_bytes)
        self._idle(size_bytes, bundle)

    def free_if_unused(self, bundle: Bundle) -> None:
        """Free a bundle that no run needs any longer."""
        if bundle.is_used:
            return
        for part in (self.idle, self.held):
            part.bytes -= bundle.idle_bytes
            part.runs -= bundle.idle_runs
        self.files -= 1

    def keep(self, run: CachedRun[Any]) -> None:
        """Turn a reservation into a run that is kept."""
        self._take_reservation(run.size_bytes)
        self.kept.add(run.size_bytes)
        run.residency = Residency.KEPT
        if run.bundle is not None:
            run.bundle.kept[run] = None

    def drop(self, run: CachedRun[Any]) -> None:
        """Stop keeping a run: it is lent while readers map it, otherwise gone."""
        self.kept.take(run.size_bytes)
        if run.bundle is not None:
            del run.bundle.kept[run]
        if run.pins:
            self.pinned.take(run.size_bytes)
            self.lent.add(run.size_bytes)
            run.residency = Residency.LENT
            if run.bundle is not None:
                run.bundle.lent += 1
        else:
            self._release(run)

    def pin(self, run: CachedRun[Any]) -> None:
        """Count one more reader of a run."""
        if run.residency is Residency.GONE:
            raise ValueError(f"{run!r} cannot be pinned: nothing holds its bytes")
        run.pins += 1
        if run.pins == 1 and run.residency is Residency.KEPT:
            self.pinned.add(run.size_bytes)

    def unpin(self, run: CachedRun[Any]) -> bool:
        """Count one reader fewer of a run; return whether its bytes are freed."""
        if not run.pins:
            raise ValueError(f"{run!r} cannot be unpinned: it has no pin")
        run.pins -= 1
        if run.pins:
            return False
        if run.residency is Residency.KEPT:
            self.pinned.take(run.size_bytes)
            return False
        self.lent.take(run.size_bytes)
        if run.bundle is not None:
            run.bundle.lent -= 1
        self._release(run)
        return True

    def check(self) -> None:
        """Assert the invariants. For tests."""
        parts = (self.reserved, self.kept, self.lent, self.idle)
        assert self.held.bytes == sum(part.bytes for part in parts)
        assert self.held.runs == sum(part.runs for part in parts)
        for part in (*parts, self.pinned):
            assert part.bytes >= part.runs >= 0
        sizes = self._reservations
        assert self.reserved.runs == sum(sizes.values())
        assert self.reserved.bytes == sum(size * sizes[size] for size in sizes)
        assert self.pinned.bytes <= self.kept.bytes
        assert self.pinned.runs <= self.kept.runs
        assert min(self.held.runs, 1) <= self.files <= self.held.runs

    def _release(self, run: CachedRun[Any]) -> None:
        """Free the memory of a run, or that of its bundle if it was the last."""
        run.residency = Residency.GONE
        if run.bundle is None:
            self.held.take(run.size_bytes)
            self.files -= 1
        else:
            self._idle(run.size_bytes, run.bundle)
            self.free_if_unused(run.bundle)

    def _idle(self, size_bytes: int, bundle: Bundle) -> None:
        self.idle.add(size_bytes)
        bundle.idle_bytes += size_bytes
        bundle.idle_runs += 1

    def _take_reservation(self, size_bytes: int) -> None:
        remaining = self._reservations.get(size_bytes, 0) - 1
        if remaining < 0:
            raise ValueError(
                f"no reservation of {size_bytes} bytes among {self.reserved.runs} with "
                f"a total of {self.reserved.bytes} bytes: use the size that was passed "
                "to reserve()"
            )
        if remaining:
            self._reservations[size_bytes] = remaining
        else:
            del self._reservations[size_bytes]
        self.reserved.take(size_bytes)
