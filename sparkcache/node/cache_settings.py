"""The settings of the cache, derived from the configuration."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from sparkcache.cache import Policy, Ring, Settings, resolve_ring, resolve_ttl

if TYPE_CHECKING:
    from sparkcache.config import NodeConfig

_SEGMENT_DESCRIPTORS = 2  # per segment: one for writing, one for reading
_MAX_SEGMENTS = 512  # each takes a descriptor in a reader, which may have 1024


def cache_settings(config: NodeConfig, max_runs: int) -> Settings:
    """Return the cache's settings, for a node that may hold `max_runs` descriptors."""
    return Settings(
        max_bytes=config.max_bytes,
        max_runs=max_runs,
        policy=Policy(config.policy),
        trigger=config.trigger,
        watermark=config.watermark,
        get_cost_bytes=config.get_cost_bytes,
        ttl=resolve_ttl(
            create_s=config.ttl_create_s,
            after_read_s=config.ttl_after_read_s,
            legacy_s=config.ttl_s,
            expected_s=config.ttl_expected_s,
            max_life_s=config.max_life_s,
        ),
        max_requeues=config.max_requeues,
        continue_s=config.continue_caching_s,
        extend_recently_accessed=config.extend_recently_accessed,
        drop_after_last_read=config.drop_after_last_read,
        granule_bytes=mmap.PAGESIZE,
        ring=_ring(config, max_runs) if config.engine == "ring" else None,
    )


def _ring(config: NodeConfig, max_runs: int) -> Ring:
    return resolve_ring(
        config.max_bytes,
        config.segment_bytes,
        copies=config.copy_entries,
        most_segments=min(max(max_runs // _SEGMENT_DESCRIPTORS, 1), _MAX_SEGMENTS),
        granule_bytes=mmap.PAGESIZE,
    )
