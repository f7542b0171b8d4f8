"""What needs a newer Spark than the oldest that is supported."""

from __future__ import annotations

import pyspark

from sparkcache.errors import ConfigError


def has_spark(since: str) -> bool:
    """Return whether this is Spark `since`, such as "4.2", or a later one."""
    return _numbers(pyspark.__version__) >= _numbers(since)


def require_spark(since: str, feature: str) -> None:
    """Raise ConfigError if a feature came with a later Spark than this one."""
    if not has_spark(since):
        raise ConfigError(
            f"{feature} needs Spark {since} or later; this is {pyspark.__version__}"
        )


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
