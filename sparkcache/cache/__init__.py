"""The cache: which runs are held, for how long, and which is evicted next.

Pure: no I/O, no clock. Start with `engine`, the interface; `run_cache` and `ring_cache`
implement it, and `planned_cache` combines an engine with the forecast of planned reads.
Every other module is a part of these.
"""

from sparkcache.cache.cached_run import Bundle, CachedRun, Residency
from sparkcache.cache.counters import Counters
from sparkcache.cache.engine import Engine
from sparkcache.cache.planned_cache import PlannedCache
from sparkcache.cache.ring_cache import RingCache
from sparkcache.cache.run_cache import RunCache
from sparkcache.cache.settings import (
    Policy,
    Ring,
    Settings,
    Ttl,
    resolve_ring,
    resolve_ttl,
)

__all__ = [
    "Bundle",
    "CachedRun",
    "Counters",
    "Engine",
    "PlannedCache",
    "Policy",
    "Residency",
    "Ring",
    "RingCache",
    "RunCache",
    "Settings",
    "Ttl",
    "resolve_ring",
    "resolve_ttl",
]
