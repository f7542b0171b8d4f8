"""What an oracle would have read: the mark for every cache.

MIN keeps what is needed next and gives up what is needed last, and does not take in
what is needed later than all that. With runs of one size nothing reads less. With runs
of several sizes the least is hard to find (it is NP-hard). The same rule stands for it;
by luck a policy may read a little less.

Source: L. A. Belady, A study of replacement algorithms for a virtual-storage
computer, 1966. Different here: a run that is not taken in is possible.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from sparkcache.simulate.tally import Tally
from sparkcache.trace import Put, Take

if TYPE_CHECKING:
    from sparkcache.model import RunKey
    from sparkcache.simulate.outcome import Outcome
    from sparkcache.trace import Trace


def belady(trace: Trace, max_bytes: int) -> Outcome:
    """Return what a trace costs for one who knows it to its end."""
    events = [event for _, event in trace.events if isinstance(event, Take | Put)]
    needed_next = _needed_next(events)
    tally = Tally(trace)
    held: dict[RunKey, float] = {}
    farthest: list[tuple[float, int, RunKey]] = []
    held_bytes = 0
    for index, event in enumerate(events):
        key, size_bytes = event.key, trace.size_bytes(event.key)
        if isinstance(event, Take):
            tally.take(event, is_held=key in held)
        if key not in held:
            held_bytes += size_bytes
        held[key] = needed_next[index]
        heappush(farthest, (-held[key], index, key))
        while held_bytes > max_bytes or (farthest and farthest[0][0] == -inf):
            when, _, last = heappop(farthest)
            if held.get(last) == -when:
                del held[last]
                held_bytes -= trace.size_bytes(last)
    return tally.outcome()


def _needed_next(events: list[Take | Put]) -> list[float]:
    """Return for each event when its run is taken next; infinite if never."""
    needed = [inf] * len(events)
    next_take: dict[RunKey, float] = {}
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        needed[index] = next_take.get(event.key, inf)
        if isinstance(event, Take):
            next_take[event.key] = index
        else:
            next_take.pop(event.key, None)
    return needed
