"""Simulation of a cache: replay a trace through the real core.

    python -m sparkcache.simulate TRACE [--policy P]... [--max-bytes N]... [--conf K=V]

P is a policy, or `ring` for the engine of that name.

In the simulation loads take no time, and nothing is prefetched.
"""

from sparkcache.simulate.belady import belady
from sparkcache.simulate.outcome import Outcome
from sparkcache.simulate.replay import simulate

__all__ = ["Outcome", "belady", "simulate"]
