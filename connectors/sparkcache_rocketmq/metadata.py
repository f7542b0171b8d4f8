"""Read the segments that a broker's own metadata list as deleted.

The broker stores its metadata on its disk, as `config/tieredStoreMetadata.json`. They
are optional: a topic can be read without them. The objects of a segment that is marked
as deleted may still exist for a while.

Source: DefaultMetadataStore of Apache RocketMQ. It writes keys that are numbers without
quotes, which JSON does not allow.
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
    """Return a predicate for segments that the option's file lists as deleted.

    Raises ConfigError, SourceError.
    """
    path = options.get(OPTION)
    if path is None:
        return lambda _: False
    try:
        tables = json.loads(_with_quotes(_read(storage, path)))
        deleted = set(_deleted(tables))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"option {OPTION}={path!r}: {type(error).__name__}: {error}; give the "
            "path of a broker's tieredStoreMetadata.json, or the name of an object "
            "with its content, relative to the scan's path"
        ) from error
    return lambda key: (key.queue.path, key.kind, key.base) in deleted


def _read(storage: Storage, path: str) -> str:
    """Return the content of a file or, if it cannot be read, of its backup."""
    try:
        return _read_file(storage, path)
    except SourceError:
        try:
            return _read_file(storage, f"{path}.bak")
        except SourceError:
            pass
        raise


def _read_file(storage: Storage, path: str) -> str:
    is_local = path.startswith(("/", "file:"))
    if not is_local:
        return storage.get(f"{storage.root}/{path}").data.decode(errors="replace")
    local = unquote(urlsplit(path).path) if path.startswith("file:") else path
    try:
        return Path(local).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(path, expected="a file", found=str(error)) from error


def _with_quotes(text: str) -> str:
    """Add quotes around keys that are numbers."""
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
