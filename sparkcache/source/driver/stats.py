"""`sparkcache.stats(spark)`: what all nodes have counted, as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from sparkcache.errors import ConfigError
from sparkcache.metrics import Metrics, TopicMetrics, by_group, by_topic
from sparkcache.source.driver.node_rpc import node_metrics, topic_metrics
from sparkcache.ui.tables import as_html, node_row, topic_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_SHOWN = {
    "node": ("node", "requests", "hit_ratio", "gets", "saved_gets", "received_bytes"),
    "topic": ("topic", "group", "requests", "hits", "gets", "saved_gets"),
    "group": ("group", "requests", "hits", "gets", "saved_gets", "received_bytes"),
}
_SHOWN_OF_ALL = ("saved_bytes", "runs", "kept_bytes")
_TYPES: dict[type, DataType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
}


def stats(spark: SparkSession, by: str = "node") -> DataFrame:
    """Return what was counted so far, one row for each node, topic or group of topics.

    The columns are those of README's table of metrics, distributions as their mean and
    what 99 % of the values are within. Notebooks show the most important ones.

    Args:
        spark: The session; a small job asks its executors.
        by: `node`, `topic` or `group`. Raises ConfigError for anything else.

    """
    if by not in _SHOWN:
        raise ConfigError(f"stats(by={by!r}): use one of {', '.join(_SHOWN)}")
    if by == "node":
        nodes = node_metrics(spark)
        rows = [node_row(name, nodes[name]) for name in sorted(nodes)]
        template = node_row("", Metrics())
    else:
        together: Callable[[Sequence[TopicMetrics]], list[TopicMetrics]]
        together = by_topic if by == "topic" else by_group
        rows = [topic_row(topic) for topic in together(topic_metrics(spark))]
        template = topic_row(TopicMetrics())
    schema = [StructField(name, _TYPES[type(of)]) for name, of in template.items()]
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], StructType(schema)
    )
    return _Stats(frame, rows, (*_SHOWN[by], *_SHOWN_OF_ALL))


class _Stats(ClassicDataFrame):
    """A DataFrame that notebooks show without running it."""

    _rows: Sequence[Mapping[str, str | float]]
    _shown: Sequence[str]

    def __new__(
        cls,
        frame: DataFrame,
        rows: Sequence[Mapping[str, str | float]],
        shown: Sequence[str],
    ) -> _Stats:
        self: _Stats = object.__new__(cls)
        self.__dict__.update(frame.__dict__, _rows=rows, _shown=shown)
        return self

    def __init__(self, *_: object) -> None:
        pass  # it is a copy

    def _repr_html_(self) -> str:
        return as_html(self._rows, self._shown)
