"""A stream reader that only raises an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

if TYPE_CHECKING:
    from sparkcache.errors import ConfigError


class RefusedStream(DataSourceStreamReader):
    """Stream reader that raises the given ConfigError on every call.

    If streamReader() itself raised it, Spark would report an error of its own code.
    """

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error for a query without a checkpoint."""
        raise self._error

    def latestOffset(self, *_: object) -> NoReturn:
        """Raise the error for a query that resumes; Spark 4.2 passes two arguments."""
        raise self._error

    def partitions(self, start: object, end: object) -> NoReturn:
        """Raise the error for a query that repeats a batch."""
        raise self._error

    def read(self, partition: object) -> NoReturn:
        """Raise the error."""
        raise self._error
