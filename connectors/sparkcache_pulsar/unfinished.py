"""Data without an index: an upload in progress, or a ledger that is lost.

Offloaders write the index last. So the entries of data without an index are not there
yet, and nothing is lost. But an index may also have been deleted, or its offloader has
died. Then all entries of the ledger are lost. Without a manifest there are two signs:

    the data are older than an upload may take     option maxUploadTime
    a later ledger of the topic has an index       offloaders take them in order

With a manifest, the manifest says which ledgers should be there. If a ledger was
offloaded more than once, and another upload has an index, nothing is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache.units import parse_seconds
from sparkcache_pulsar.uploads import NO_LEDGER

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from sparkcache_pulsar.uploads import Upload

OPTION = "maxUploadTime"

_DEFAULT = "1h"


def max_upload_ms(options: Mapping[str, str]) -> int:
    """Return how old data in an upload in progress may be; raises ConfigError."""
    text = options.get(OPTION, _DEFAULT)
    try:
        return round(parse_seconds(text) * 1e3)
    except ValueError as error:
        raise ConfigError(f"option {OPTION}={text!r}: must be {error}") from error


def without_repeated(uploads: Sequence[Upload]) -> list[Upload]:
    """Leave out data without an index of ledgers that have another upload with one."""
    indexed = {upload.ledger for upload in uploads if upload.has_index} - {NO_LEDGER}
    return [
        upload for upload in uploads if upload.has_index or upload.ledger not in indexed
    ]


def without_unlisted(uploads: Sequence[Upload], listed: Container[int]) -> list[Upload]:
    """Leave out data without an index of ledgers that are not in the manifest."""
    return [upload for upload in uploads if upload.has_index or upload.ledger in listed]


def without_uploads_in_progress(
    uploads: Sequence[Upload], now_ms: int, max_ms: int
) -> list[Upload]:
    """Leave out data without an index that are not lost, by the two signs."""
    newest: dict[str | None, int] = {}
    for upload in uploads:
        if upload.has_index and upload.topic is not None:
            newest[upload.topic] = max(upload.ledger, newest.get(upload.topic, -1))
    return [
        upload
        for upload in uploads
        if upload.has_index
        or NO_LEDGER < upload.ledger < newest.get(upload.topic, -1)
        or now_ms - upload.written_ms > max_ms
    ]
