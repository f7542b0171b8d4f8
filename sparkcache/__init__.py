"""A distributed read-through cache for topics in object storage, for Spark.

The public names are imported on first use, because a node and its loaders import this
package too and run without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkcache.config import CacheConfig
    from sparkcache.errors import ConfigError, SourceError
    from sparkcache.source.driver.attach import attach_ui
    from sparkcache.source.driver.clear import clear
    from sparkcache.source.driver.losses import losses
    from sparkcache.source.driver.session import configure, install
    from sparkcache.source.driver.stats import stats
    from sparkcache.source.planning.plans import plan

__version__ = "0.1.0"

__all__ = [
    "CacheConfig",
    "ConfigError",
    "SourceError",
    "attach_ui",
    "clear",
    "configure",
    "install",
    "losses",
    "plan",
    "stats",
]

_MODULES = {
    "CacheConfig": "sparkcache.config",
    "ConfigError": "sparkcache.errors",
    "SourceError": "sparkcache.errors",
    "attach_ui": "sparkcache.source.driver.attach",
    "clear": "sparkcache.source.driver.clear",
    "configure": "sparkcache.source.driver.session",
    "install": "sparkcache.source.driver.session",
    "losses": "sparkcache.source.driver.losses",
    "plan": "sparkcache.source.planning.plans",
    "stats": "sparkcache.source.driver.stats",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
