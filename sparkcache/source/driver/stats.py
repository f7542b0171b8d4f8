"""`sparkcache.stats(spark)`: the metrics of all nodes, as a DataFrame."""

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
from sparkcache.ui.tables import as_html, node_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_COLUMNS = {
    "node": ("node", "requests", "hit_ratio", "gets", "saved_gets", "received_bytes"),
    "topic": ("topic", "group", "requests", "hits", "gets", "saved_gets"),
    "group": ("group", "requests", "hits", "gets", "saved_gets", "received_bytes"),
}
_COMMON_COLUMNS = ("saved_bytes", "runs", "kept_bytes")
_TYPES: dict[type, DataType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
}


def stats(spark: SparkSession, by: str = "node") -> DataFrame:
    """Return the metrics so far, one row for each node, topic or group of topics.

    The columns are those of the table of metrics; a distribution has its mean and
    its 99th percentile. Notebooks show the most important columns.

    Args:
        spark: The session; a small job polls its executors.
        by: `node`, `topic` or `group`. Raises ConfigError for anything else.

    """
    if by not in _COLUMNS:
        raise ConfigError(f"stats(by={by!r}): use one of {', '.join(_COLUMNS)}")
    if by == "node":
        nodes = node_metrics(spark)
        rows = [node_row(name, nodes[name]) for name in sorted(nodes)]
        template = node_row("", Metrics())
    else:
        merge: Callable[[Sequence[TopicMetrics]], list[TopicMetrics]]
        merge = by_topic if by == "topic" else by_group
        rows = [topic.by_name() for topic in merge(topic_metrics(spark))]
        template = TopicMetrics().by_name()
    schema = [
        StructField(name, _TYPES[type(value)]) for name, value in template.items()
    ]
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], StructType(schema)
    )
    return _Stats(frame, rows, (*_COLUMNS[by], *_COMMON_COLUMNS))


class _Stats(ClassicDataFrame):
    """A DataFrame with its rows, so that notebooks show it without running a job."""

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
        pass  # __new__ has copied the frame

    def _repr_html_(self) -> str:
        return as_html(self._rows, self._shown)
