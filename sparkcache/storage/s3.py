"""Objects in S3, or in a server with the same protocol, through boto3.

boto3 retries a request until the headers of its response have arrived. Failures while
the body is read are handled here: another GET for the rest, of the same ETag.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import boto3
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from urllib3.exceptions import HTTPError

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId
from sparkcache.storage import s3_pages
from sparkcache.storage.empty import EmptyRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from botocore.response import StreamingBody
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

    from sparkcache.config import StorageConfig
    from sparkcache.connector import ByteStream
    from sparkcache.storage.traffic import Traffic

_MOST_CONNECTIONS = 32
_LISTINGS_AT_ONCE = 8
_PAGE_KEYS = 1000
_LEAST_HITS = 20  # a page costs about as much as that many small GETs
_FIRST_PAUSE_S = 0.1
_AWS = ".amazonaws.com"
_BROKEN = (BotoCoreError, HTTPError, OSError)
_BY_CODE = {
    "NoSuchBucket": ("a bucket with this name", "none"),
    "NoSuchKey": ("the object that was planned", "none with this name"),
    "404": ("the object that was planned", "none with this name"),
    "AccessDenied": ("permission to read", "access denied"),
    "403": ("permission to read", "access denied"),
    "InvalidRange": ("bytes at this offset", "the end of the object before it"),
    "SignatureDoesNotMatch": ("valid credentials", "a rejected signature"),
    "InvalidAccessKeyId": ("valid credentials", "a rejected access key"),
}


class S3Storage:
    """Reads objects of one bucket, below a prefix."""

    def __init__(self, root: str, config: StorageConfig, traffic: Traffic) -> None:
        self.root = root
        self.traffic = traffic
        self.attempts = config.storage_attempts
        self._config = config
        self._bucket, self._prefix = _split(root)

    def __repr__(self) -> str:
        return f"S3Storage({self.root}, {self.traffic})"

    def list(self) -> Iterator[ObjectId]:
        """Yield every object below the root, page by page, ordered by name."""
        prefix = f"{self._prefix}/" if self._prefix else ""
        with _translated(self.root):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            for page in pages:
                for listed in s3_pages.objects(page):
                    yield _object_id(self._bucket, listed)

    def listed(self, uris: Collection[str]) -> dict[str, ObjectId]:
        """Return the identities of objects, as far as listings tell them.

        The names to look for are cut into parts of a page each, which are listed side
        by side.
        """
        by_bucket = groupby(sorted(map(_split, set(uris))), key=itemgetter(0))
        parts = [
            (bucket, keys[first : first + _PAGE_KEYS])
            for bucket, pairs in by_bucket
            for keys in [[key for _, key in pairs]]
            for first in range(0, len(keys), _PAGE_KEYS)
        ]
        with ThreadPoolExecutor(_LISTINGS_AT_ONCE) as pool:
            listings = [pool.submit(self._listed, *part) for part in parts]
            try:
                return {
                    found.uri: found
                    for listing in listings
                    for found in listing.result()
                }
            finally:
                pool.shutdown(cancel_futures=True)

    def _listed(self, bucket: str, keys: Sequence[str]) -> Iterable[ObjectId]:
        """Return which of some keys in order exist, until a page has too few of them.

        Each page begins at the next key: what lies between two keys is not listed.
        """
        wanted = set(keys)
        prefix = commonprefix([keys[0], keys[-1]])  # noqa: RUF071 - of names, not paths
        found = []
        first, following = -1, 0
        while first < following < len(keys):  # some servers begin at the first page
            first = following
            with _translated(f"s3://{bucket}/{prefix}"):
                page = self._client.list_objects_v2(
                    Bucket=bucket, Prefix=prefix, StartAfter=keys[first][:-1]
                )
            listed = s3_pages.objects(page)
            hits = [each for each in listed if each.key in wanted]
            found += [_object_id(bucket, each) for each in hits]
            if not page["IsTruncated"] or len(hits) < _LEAST_HITS:
                break
            following = bisect_right(keys, listed[-1].key)
        return found

    def get(self, uri: str) -> StoredObject:
        """Read a whole object."""
        response, data = self._get_body(uri)
        return _stored_object(uri, response, len(data), data)

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        """Read the last bytes of an object."""
        response, data = self._get_body(uri, Range=f"bytes=-{size_bytes}")
        _, _, total = response.get("ContentRange", "").rpartition("/")
        whole_bytes = int(total) if total.isdecimal() else len(data)
        return _stored_object(uri, response, whole_bytes, data[-size_bytes:])

    def access(self) -> Mapping[str, str]:
        """Return the settings that boto3 uses, so that only boto3 is configured."""
        endpoint = self._client.meta.endpoint_url
        settings = {"aws_region": self._client.meta.region_name}
        if self._config.path_style or _AWS not in endpoint:
            settings["aws_endpoint"] = endpoint
            settings["aws_virtual_hosted_style_request"] = "false"
            settings["aws_allow_http"] = str(endpoint.startswith("http:")).lower()
        credentials = boto3.session.Session().get_credentials()
        if credentials is None:
            return settings
        frozen = credentials.get_frozen_credentials()
        secrets = {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
            "aws_session_token": frozen.token,
        }
        return settings | {name: secret for name, secret in secrets.items() if secret}

    def _get_body(
        self,
        uri: str,
        **wanted: Any,
    ) -> tuple[GetObjectOutputTypeDef, bytes]:
        """Make a GET and read its whole body; start again if the body breaks off."""
        bucket, key = _split(uri)
        for attempt in range(self.attempts):
            if attempt:
                self._pause(attempt)
            with _translated(uri):
                response = self._get(Bucket=bucket, Key=key, **wanted)
                try:
                    data = response["Body"].read()
                    break
                except _BROKEN as error:
                    problem = error
        else:
            raise SourceError(
                uri,
                expected=f"{response['ContentLength']} bytes",
                found=f"{problem}, {self.attempts} times",
            ) from problem
        self.traffic.add(received_bytes=len(data))
        return response, data

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> ByteStream:
        """Read a range of exactly this version of an object, if it has a version."""
        if size_bytes == 0:
            return EmptyRange(offset)
        return ObjectRange(self, object_id, offset, offset + size_bytes)

    def request(self, object_id: ObjectId, offset: int, end: int) -> StreamingBody:
        """Make one GET for the bytes from `offset` to `end`, exclusive."""
        bucket, key = _split(object_id.uri)
        version = object_id.version
        condition = {"IfMatch": f'"{version}"'} if version else {}
        with _translated(object_id.uri, offset, version):
            response = self._get(
                Bucket=bucket, Key=key, Range=f"bytes={offset}-{end - 1}", **condition
            )
        _require_requested(response, object_id, offset)
        return response["Body"]

    def resume(
        self, object_id: ObjectId, offset: int, end: int, attempt: int
    ) -> StreamingBody:
        """Make a GET for the rest after another one broke off, after a pause."""
        self._pause(attempt)
        return self.request(object_id, offset, end)

    def _get(self, **wanted: Any) -> GetObjectOutputTypeDef:
        """Make a GET and count every attempt that boto3 makes."""
        metadata: Mapping[str, Any] = {}
        try:
            response = self._client.get_object(**wanted)
            metadata = response["ResponseMetadata"]
        except ClientError as error:
            metadata = error.response["ResponseMetadata"]
            raise
        finally:
            retries = metadata.get("RetryAttempts", 0)
            self.traffic.add(gets=1 + retries, retries=retries)
        return response

    def _pause(self, attempt: int) -> None:
        """Wait before a request is repeated, twice as long each time."""
        time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
        self.traffic.add(retries=1)

    @cached_property
    def _client(self) -> S3Client:
        """boto3 client, created on first use because invalid settings raise errors."""
        config = self._config
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=config.endpoint,
            region_name=config.region,
            config=Config(
                connect_timeout=config.storage_timeout_s,
                read_timeout=config.storage_timeout_s,
                max_pool_connections=_MOST_CONNECTIONS,
                retries={"mode": "standard", "total_max_attempts": self.attempts},
                s3={"addressing_style": "path" if config.path_style else "auto"},
            ),
        )
        s3_pages.parse_objects(client)
        return client


class ObjectRange:
    """Byte stream over a range of an object, as it arrives.

    If a GET breaks off, another one requests the rest, after a pause that doubles with
    each attempt. Bytes that arrive reset the number of attempts.
    """

    def __init__(
        self, storage: S3Storage, object_id: ObjectId, position: int, end: int
    ) -> None:
        self._storage = storage
        self._object_id = object_id
        self._end = end
        self._body = storage.request(object_id, position, end)
        self.position = position

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, at most `size_bytes`; empty only at the end."""
        wanted = min(size_bytes, self._end - self.position)
        if wanted <= 0:
            return b""
        problem: Exception | None = None
        for attempt in range(self._storage.attempts):
            if attempt:
                self._body = self._storage.resume(
                    self._object_id, self.position, self._end, attempt
                )
            try:
                data = self._body.read(wanted)
                if data:
                    break
            except _BROKEN as error:
                problem = error
            self._body.close()
        else:
            raise SourceError(
                self._object_id.uri,
                offset=self.position,
                expected=f"{self._end - self.position} bytes more",
                found=f"{problem or 'the end of the response'}, "
                f"{self._storage.attempts} times",
            ) from problem
        self.position += len(data)
        self._storage.traffic.add(received_bytes=len(data))
        return data

    def close(self) -> None:
        """Close the response; the remaining bytes are not read."""
        self._end = self.position
        self._body.close()


def _stored_object(
    uri: str, response: GetObjectOutputTypeDef, size_bytes: int, data: bytes
) -> StoredObject:
    object_id = ObjectId(uri, size_bytes, response["ETag"].strip('"'))
    modified_ms = int(response["LastModified"].timestamp() * 1e3)
    return StoredObject(object_id, response["Metadata"], data, modified_ms)


def _require_requested(
    response: GetObjectOutputTypeDef, object_id: ObjectId, offset: int
) -> None:
    """Raise SourceError if the server ignored `Range` or `If-Match`; some do.

    A response that is too short is detected later, at the end of its stream.
    """
    version = response["ETag"].strip('"') if object_id.version else ""
    content_range = response.get("ContentRange", "bytes 0-")
    if version == object_id.version and content_range.startswith(f"bytes {offset}-"):
        return
    response["Body"].close()
    if version != object_id.version:
        raise _overwritten(object_id.uri, object_id.version)
    raise SourceError(
        object_id.uri,
        offset=offset,
        expected="the requested range",
        found=f"{content_range}...: the server ignores ranges",
    )


@contextmanager
def _translated(
    uri: str, offset: int | None = None, version: str = ""
) -> Iterator[None]:
    """Convert errors of boto3 into a SourceError about this object."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "?")
        if code in {"PreconditionFailed", "412"}:
            raise _overwritten(uri, version) from error
        expected, found = _BY_CODE.get(code, ("a response", str(error)))
        raise SourceError(uri, offset=offset, expected=expected, found=found) from error
    except NoCredentialsError as error:
        raise SourceError(
            uri,
            expected="credentials in the environment, a profile or the machine's role",
            found="none",
        ) from error
    except (*_BROKEN, ValueError) as error:  # ValueError: an invalid URL or region name
        raise SourceError(
            uri, offset=offset, expected="a response", found=str(error)
        ) from error


def _overwritten(uri: str, version: str) -> SourceError:
    return SourceError(
        uri, expected=f"version {version}, as planned", found="it was overwritten"
    )


def _object_id(bucket: str, listed: s3_pages.Listed) -> ObjectId:
    return ObjectId(f"s3://{bucket}/{listed.key}", listed.size_bytes, listed.etag)


def _split(uri: str) -> tuple[str, str]:
    """Return bucket and key; the key is the rest of the URI, taken literally."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
