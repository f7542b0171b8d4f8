"""A distributed read-through cache for topics in object storage, for Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sparkcache.config import CacheConfig
from sparkcache.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from sparkcache.source.planning import plan
    from sparkcache.source.session import configure, install

__all__ = [
    "CacheConfig",
    "ConfigError",
    "SourceError",
    "configure",
    "install",
    "plan",
]

# Imported when they are first used: the node and its loaders live without Spark.
_SOURCE_MODULES = {
    "configure": "sparkcache.source.session",
    "install": "sparkcache.source.session",
    "plan": "sparkcache.source.planning",
}


def __getattr__(name: str) -> object:
    if name not in _SOURCE_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_SOURCE_MODULES[name]), name)
