"""Module by which Spark finds `format("sparkcache")` without registration.

Spark imports every top-level module whose name begins with `pyspark_` and registers its
`DefaultSource`.
"""

from sparkcache.source.datasource import SparkCacheSource as DefaultSource

__all__ = ["DefaultSource"]
