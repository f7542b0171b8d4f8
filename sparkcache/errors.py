"""What can go wrong, sorted by what the caller can do about it."""

from __future__ import annotations


class SparkCacheError(Exception):
    """The base of all errors of this package."""


class ConfigError(SparkCacheError, ValueError):
    """An option or setting is wrong. The message names it and what would do."""


class NoSuchTopicError(ConfigError):
    """A topic is wanted of which nothing is stored, at least not yet."""


class SourceError(SparkCacheError):
    """An object is missing, refused, corrupt or changed. Spark retries the task.

    Attributes:
        uri: The object.
        offset: Where in the object, in bytes; None if it concerns it all.
        expected: What should have been there.
        found: What was there.

    """

    def __init__(
        self, uri: str, *, expected: str, found: str, offset: int | None = None
    ) -> None:
        place = uri if offset is None else f"{uri} at byte {offset}"
        super().__init__(f"{place}: expected {expected}, found {found}")
        self.uri = uri
        self.offset = offset
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[object, ...]:
        return _source_error, (self.uri, self.offset, self.expected, self.found)


class CacheUnavailable(SparkCacheError):  # noqa: N818 - a state, not a mistake
    """The node cannot serve. Whoever catches it loads without the node."""


def _source_error(
    uri: str, offset: int | None, expected: str, found: str
) -> SourceError:
    return SourceError(uri, offset=offset, expected=expected, found=found)
