"""Where Spark finds `format("sparkcache")` by itself.

It imports every top-level module whose name begins with `pyspark_` and takes its
`DefaultSource`.
"""

from sparkcache.source.datasource import SparkCacheSource as DefaultSource

__all__ = ["DefaultSource"]
