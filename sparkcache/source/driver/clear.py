"""`sparkcache.clear(spark)`: empty the caches of all executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache.source.driver.node_rpc import clear_nodes, topic_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_NAMES = 10  # in an error


def clear(spark: SparkSession, topic: str | None = None) -> None:
    """Evict all runs that the executors hold, or those of one topic.

    Later reads load them again. A task keeps the runs that it is reading, and a run
    that is being loaded meanwhile is held afterwards.

    Args:
        spark: The session; a small job reaches its executors.
        topic: A topic as `sparkcache.stats(spark, by="topic")` names it. Raises
            ConfigError if the executors have not read such a topic.

    """
    if topic is not None:
        known = {metrics.topic for metrics in topic_metrics(spark)}
        if topic not in known and "" not in known:  # "": those not counted one by one
            names = ", ".join(sorted(known)[:_MAX_NAMES]) or "none"
            raise ConfigError(
                f"clear(topic={topic!r}): the executors have read no such topic, but "
                f"{len(known)}: {names}{', ...' * (len(known) > _MAX_NAMES)}"
            )
    clear_nodes(spark, topic)
