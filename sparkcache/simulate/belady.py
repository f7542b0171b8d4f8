"""Belady's MIN, an oracle: the benchmark for every policy.

MIN evicts the run that is needed last, and does not admit a run that is needed later
than all runs held. If all runs have one size, no policy reads less. For runs of several
sizes the optimum is NP-hard to find; the same rule approximates it, and by luck a
policy may read a little less.

Source: L. A. Belady, A study of replacement algorithms for a virtual-storage
computer, 1966. Different here: a run may be not admitted.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from sparkcache.simulate.tally import Tally
from sparkcache.trace import Open, Put, Take

if TYPE_CHECKING:
    from sparkcache.model import RunKey
    from sparkcache.simulate.outcome import Outcome
    from sparkcache.trace import Trace


def belady(trace: Trace, max_bytes: int) -> Outcome:
    """Return what a trace costs for an oracle that knows all of it in advance."""
    events = [
        event for _, event in trace.events if isinstance(event, Open | Take | Put)
    ]
    needed_next = _needed_next(events)
    tally = Tally(trace)
    held: dict[RunKey, float] = {}
    farthest: list[tuple[float, int, RunKey]] = []
    held_bytes = 0
    for index, event in enumerate(events):
        if isinstance(event, Open):
            tally.open(event)
            continue
        key, size_bytes = event.key, trace.size_bytes(event.key)
        if isinstance(event, Take):
            tally.take(event, is_held=key in held)
        if key not in held:
            held_bytes += size_bytes
        held[key] = needed_next[index]
        heappush(farthest, (-held[key], index, key))
        while held_bytes > max_bytes or (farthest and farthest[0][0] == -inf):
            negative_index, _, last_key = heappop(farthest)
            if held.get(last_key) == -negative_index:
                del held[last_key]
                held_bytes -= trace.size_bytes(last_key)
    return tally.outcome()


def _needed_next(events: list[Open | Take | Put]) -> list[float]:
    """Return for each event the index of the next take of its run; infinite if none."""
    needed = [inf] * len(events)
    next_take: dict[RunKey, float] = {}
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if isinstance(event, Open):
            continue
        needed[index] = next_take.get(event.key, inf)
        if isinstance(event, Take):
            next_take[event.key] = index
        else:
            next_take.pop(event.key, None)
    return needed
