"""Listings of buckets: of all that is below a name, or of given names."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from functools import partial
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from sparkcache.errors import SourceError
from sparkcache.model import ObjectId
from sparkcache.storage import at_once, s3_pages
from sparkcache.storage.s3_errors import translated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef

    from sparkcache.storage.s3_client import RenewedClient

_AT_ONCE = 16
_PAGE_KEYS = 1000
_LEAST_HITS = 20  # a page costs about as much as that many small GETs


class Listings:
    """Lists objects, several pages at once where that is possible. Thread-safe."""

    def __init__(self, client: RenewedClient, payer: Mapping[str, Any]) -> None:
        self._client = client
        self._payer = payer

    def __repr__(self) -> str:
        return f"Listings({self._client})"

    def below(
        self, bucket: str, folder: str, cuts: Sequence[str]
    ) -> Iterator[ObjectId]:
        """Yield every object below a folder, page by page, ordered by name.

        What follows the first page is listed in parts of about a page, side by side,
        if it can be cut. How many cuts the first page covers tells how many.
        """
        prefix = f"{folder}/" if folder else ""
        found, rest = self._page(bucket, prefix)
        yield from found
        if not rest:
            return
        last = split(found[-1].uri)[1] if found else prefix
        later = [prefix + cut for cut in cuts if prefix + cut > last]
        covered = len(cuts) - len(later)
        begins = [last, *later[max(0, covered - 1) :: max(1, covered)]]
        if len(begins) == 1:
            yield from self._pages(bucket, prefix, ContinuationToken=rest)
            return
        parts = list(zip(begins, [*begins[1:], ""], strict=True))
        each_part = partial(map, partial(self._part, bucket, prefix))
        with closing(at_once.results(each_part, parts, _AT_ONCE)) as listed:
            for part in listed:
                yield from part

    def _part(
        self, bucket: str, prefix: str, limits: tuple[str, str]
    ) -> Sequence[ObjectId]:
        """Return the objects after one name up to another one, or to the end."""
        begin, end = (f"s3://{bucket}/{limit}" for limit in limits)
        found = []
        for each in self._pages(bucket, prefix, StartAfter=limits[0]):
            if limits[1] and each.uri > end:
                break
            if each.uri > begin:  # some servers begin at the first page
                found.append(each)
        return found

    def _pages(self, bucket: str, prefix: str, **at: str) -> Iterator[ObjectId]:
        """Yield the objects from a place on, page by page."""
        while True:
            found, rest = self._page(bucket, prefix, **at)
            yield from found
            if not rest:
                return
            at = {"ContinuationToken": rest}

    def named(self, uris: Collection[str]) -> dict[str, ObjectId]:
        """Return the identities of objects, as far as listings tell them.

        The names to look for are cut into parts of a page each, which are listed side
        by side.
        """
        by_bucket = groupby(sorted(map(split, set(uris))), key=itemgetter(0))
        parts = [
            (bucket, keys[first : first + _PAGE_KEYS])
            for bucket, pairs in by_bucket
            for keys in [[key for _, key in pairs]]
            for first in range(0, len(keys), _PAGE_KEYS)
        ]
        each_part = partial(map, self._named)
        with closing(at_once.results(each_part, parts, _AT_ONCE)) as listed:
            return {found.uri: found for part in listed for found in part}

    def _named(self, part: tuple[str, Sequence[str]]) -> Iterable[ObjectId]:
        """Return which of some keys in order exist, until a page has too few of them.

        Each page begins at the next key: what lies between two keys is not listed.
        """
        bucket, keys = part
        wanted = set(keys)
        prefix = commonprefix([keys[0], keys[-1]])  # noqa: RUF071 - of names, not paths
        found = []
        first, following = -1, 0
        while first < following < len(keys):  # some servers begin at the first page
            first = following
            page = self._response(bucket, prefix, StartAfter=keys[first][:-1])
            listed = s3_pages.objects(page)
            hits = [each for each in listed if each.key in wanted]
            found += [_object_id(bucket, each) for each in hits]
            if not page["IsTruncated"] or len(hits) < _LEAST_HITS:
                break
            following = bisect_right(keys, listed[-1].key)
        return found

    def _page(
        self, bucket: str, prefix: str, **at: str
    ) -> tuple[Sequence[ObjectId], str]:
        """Return the objects on a page, and where the next one is; empty if nowhere."""
        page = self._response(bucket, prefix, **at)
        found = [_object_id(bucket, each) for each in s3_pages.objects(page)]
        return found, page["NextContinuationToken"] if page["IsTruncated"] else ""

    def _response(
        self, bucket: str, prefix: str, **at: Any
    ) -> ListObjectsV2OutputTypeDef:
        wanted = {"Bucket": bucket, "Prefix": prefix, **at, **self._payer}
        with translated(f"s3://{bucket}/{prefix}".rstrip("/")):
            return self._client.call(lambda client: client.list_objects_v2(**wanted))


def version_of(uri: str, described: Mapping[str, Any]) -> str:
    """Return the ETag in a response or listing; raises SourceError without one."""
    etag: str = described.get("ETag", "").strip('"')
    if not etag:
        raise SourceError(
            uri, expected="an ETag, which tells versions apart", found="none"
        )
    return etag


def _object_id(bucket: str, listed: s3_pages.Listed) -> ObjectId:
    key, size_bytes, etag = listed
    uri = f"s3://{bucket}/{key}"
    return ObjectId(uri, size_bytes, etag or version_of(uri, {}))


def split(uri: str) -> tuple[str, str]:
    """Return bucket and key; the key is the rest of the URI, taken literally."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
