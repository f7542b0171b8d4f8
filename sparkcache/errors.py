"""Exceptions, one class for each way in which a caller can react."""

from __future__ import annotations


class SparkCacheError(Exception):
    """Base class of all errors of this package."""


class ConfigError(SparkCacheError, ValueError):
    """An option or setting is wrong. The message names it and valid values."""


class NoSuchTopicError(ConfigError):
    """Nothing is stored of a requested topic, at least not yet."""


class SourceError(SparkCacheError):
    """An object is missing, inaccessible, corrupt or changed. Spark retries the task.

    Attributes:
        uri: The object.
        offset: Offset of the problem in bytes; None if it concerns the whole object.
        expected: What should be stored there.
        found: What is stored there.

    """

    def __init__(
        self, uri: str, *, expected: str, found: str, offset: int | None = None
    ) -> None:
        location = uri if offset is None else f"{uri} at byte {offset}"
        super().__init__(f"{location}: expected {expected}, found {found}")
        self.uri = uri
        self.offset = offset
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.uri, self.offset, self.expected, self.found)
        return _source_error, (type(self), *fields)


class CredentialsError(SourceError):
    """The storage refused this process's credentials, or the process has none.

    Another process may have others.
    """


class CacheUnavailable(SparkCacheError):  # noqa: N818 - a state, not a mistake
    """The node cannot serve. The caller then reads without the cache."""


def _source_error(
    error_class: type[SourceError],
    uri: str,
    offset: int | None,
    expected: str,
    found: str,
) -> SourceError:
    return error_class(uri, offset=offset, expected=expected, found=found)
