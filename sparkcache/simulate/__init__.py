"""What a cache would have done: the real core, over a trace.

    python -m sparkcache.simulate TRACE [--policy P]... [--max-bytes N]... [--conf K=V]

P is a policy, or `ring` for the engine of that name.

Loads take no time here, and nothing is loaded ahead of who asks for it.
"""

from sparkcache.simulate.belady import belady
from sparkcache.simulate.outcome import Outcome
from sparkcache.simulate.replay import simulate

__all__ = ["Outcome", "belady", "simulate"]
