"""Which runs are held, how long, and which goes next. Pure: no I/O, no clock.

Start with `run_cache`; every other module is one of its parts.
"""

from sparkcache.cache.cached_run import CachedRun, Place
from sparkcache.cache.counters import Counters
from sparkcache.cache.run_cache import RunCache
from sparkcache.cache.settings import Settings, Ttl, resolve_ttl

__all__ = [
    "CachedRun",
    "Counters",
    "Place",
    "RunCache",
    "Settings",
    "Ttl",
    "resolve_ttl",
]
