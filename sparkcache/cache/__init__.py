"""Which runs are held, how long, and which goes next. Pure: no I/O, no clock.

Start with `run_cache`, then `planned_cache`, which joins it with what is planned. Every
other module is a part of these.
"""

from sparkcache.cache.cached_run import CachedRun, Place
from sparkcache.cache.counters import Counters
from sparkcache.cache.planned_cache import PlannedCache
from sparkcache.cache.run_cache import RunCache
from sparkcache.cache.settings import Policy, Settings, Ttl, resolve_ttl

__all__ = [
    "CachedRun",
    "Counters",
    "Place",
    "PlannedCache",
    "Policy",
    "RunCache",
    "Settings",
    "Ttl",
    "resolve_ttl",
]
