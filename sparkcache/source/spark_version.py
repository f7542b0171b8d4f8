"""Checks for features that need a newer Spark than the oldest supported one."""

from __future__ import annotations

import pyspark

from sparkcache.errors import ConfigError


def has_spark(since: str) -> bool:
    """Return whether the installed Spark is `since`, such as "4.2", or later."""
    return _numbers(pyspark.__version__) >= _numbers(since)


def require_spark(since: str, feature: str) -> None:
    """Raise ConfigError if a feature needs a later Spark than the installed one."""
    if not has_spark(since):
        raise ConfigError(
            f"{feature} needs Spark {since} or later; this is {pyspark.__version__}"
        )


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
