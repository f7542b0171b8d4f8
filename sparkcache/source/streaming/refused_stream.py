"""A stream that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

if TYPE_CHECKING:
    from sparkcache.errors import ConfigError


class RefusedStream(DataSourceStreamReader):
    """Says why as soon as it is asked anything.

    If streamReader() itself raises, Spark reports an error of its own code instead.
    """

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error, where a query begins that has no checkpoint."""
        raise self._error

    def latestOffset(self, *_: object) -> NoReturn:
        """Raise the error, where one goes on. Spark 4.2 passes a start and a limit."""
        raise self._error

    def partitions(self, start: object, end: object) -> NoReturn:
        """Raise the error, where one reads a batch again."""
        raise self._error

    def read(self, partition: object) -> NoReturn:
        """Raise the error: there is nothing to read."""
        raise self._error
