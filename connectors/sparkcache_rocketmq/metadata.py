"""What a broker's own list says of segments: which of them are deleted.

It lies on the broker's disk, as `config/tieredStoreMetadata.json`; all that is needed
to read a topic is known without it. A segment that was marked as deleted may still be
there for a while.

Source: DefaultMetadataStore of Apache RocketMQ. What writes it leaves numbers that are
keys without quotes, which JSON does not allow.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from sparkcache.errors import ConfigError, SourceError
from sparkcache_rocketmq.names import COMMIT_LOG, CONSUME_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.connector import Storage
    from sparkcache_rocketmq.names import Key

OPTION = "metadata"

_DELETED = 2
_TABLES = {
    "commitLogFileSegmentTable": COMMIT_LOG,
    "consumeQueueFileSegmentTable": CONSUME_QUEUE,
}
_STRING_OR_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)


def read_deleted(storage: Storage, options: Mapping[str, str]) -> Callable[[Key], bool]:
    """Return what tells segments that the option's file lists as deleted.

    Raises ConfigError, SourceError.
    """
    place = options.get(OPTION)
    if place is None:
        return lambda _: False
    try:
        tables = json.loads(_with_quotes(_read(storage, place)))
        deleted = set(_deleted(tables))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"option {OPTION}={place!r}: {type(error).__name__}: {error}; give the "
            "path of a broker's tieredStoreMetadata.json, or the name of an object "
            "below the path that holds it"
        ) from error
    return lambda key: (key.queue.path, key.kind, key.base) in deleted


def _read(storage: Storage, place: str) -> str:
    """Return what a file holds, or, if it is not there, what its backup does."""
    try:
        return _read_file(storage, place)
    except SourceError:
        try:
            return _read_file(storage, f"{place}.bak")
        except SourceError:
            pass
        raise


def _read_file(storage: Storage, place: str) -> str:
    is_local = place.startswith(("/", "file:"))
    if not is_local:
        return storage.get(f"{storage.root}/{place}").data.decode(errors="replace")
    path = unquote(urlsplit(place).path) if place.startswith("file:") else place
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(place, expected="a file", found=str(error)) from error


def _with_quotes(text: str) -> str:
    """Put quotes around keys that are numbers."""
    return _STRING_OR_KEY.sub(lambda match: match[1] or f'{match[2]}"{match[3]}"', text)


def _deleted(tables: Mapping[str, Any]) -> set[tuple[str, str, int]]:
    """Return the segments listed as deleted: path of the queue, kind, base."""
    return {
        (path, kind, int(base))
        for table, kind in _TABLES.items()
        for path, segments in (tables.get(table) or {}).items()
        for base, segment in segments.items()
        if segment.get("status") == _DELETED
    }
