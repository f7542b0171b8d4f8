"""Objects in S3, or in a server with the same protocol, through boto3.

boto3 retries a request until the headers of its response have arrived. Failures while
the body is read are handled here, a body that is too slow among them: another GET for
the rest, of the same ETag.
"""

from __future__ import annotations

import random
import time
from contextlib import closing
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.exceptions import ClientError

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId
from sparkcache.storage import at_once, s3_small
from sparkcache.storage.empty import EmptyRange
from sparkcache.storage.kept import Kept
from sparkcache.storage.one_by_one import read_range
from sparkcache.storage.s3_client import MOST_CONNECTIONS, RenewedClient
from sparkcache.storage.s3_errors import BROKEN, overwritten, translated
from sparkcache.storage.s3_listings import Listings, split, version_of
from sparkcache.storage.s3_progress import (
    PROGRESS_BYTES,
    TooSlowError,
    require_progress,
)
from sparkcache.storage.s3_small import SmallReads

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterator,
        Mapping,
        Sequence,
    )

    from botocore.response import StreamingBody
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

    from sparkcache.config import StorageConfig
    from sparkcache.connector import ByteRange, ByteStream
    from sparkcache.storage.s3_small import Answer
    from sparkcache.storage.traffic import Traffic

_SMALL_READS = 256  # at once
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 20.0

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class S3Storage:
    """Reads objects of one bucket, below a prefix."""

    def __init__(self, root: str, config: StorageConfig, traffic: Traffic) -> None:
        self.root = root
        self.traffic = traffic
        self.attempts = config.storage_attempts
        self._config = config
        self._bucket, self._prefix = split(root)
        self._client = RenewedClient(config)
        self._payer: dict[str, Any] = (
            {"RequestPayer": "requester"} if config.requester_pays else {}
        )
        self._kept = Kept(root, config.plan_cache_path, config.plan_cache_bytes)
        self._listings = Listings(self._client, self._payer)
        self._small = SmallReads(config, self._client, traffic)
        self._few = BoundedSemaphore(MOST_CONNECTIONS)

    def __repr__(self) -> str:
        return f"S3Storage({self.root}, {self.traffic})"

    def list(self, cuts: Sequence[str] = ()) -> Iterator[ObjectId]:
        """Yield every object below the root, ordered by name."""
        return self._listings.below(self._bucket, self._prefix, cuts)

    def listed(self, uris: Collection[str]) -> dict[str, ObjectId]:
        """Return the identities of objects, as far as listings tell them."""
        return self._listings.named(uris)

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

    def recall(
        self,
        kind: str,
        ids: Sequence[ObjectId],
    ) -> Sequence[bytes | None]:
        """Return what was kept of objects on this machine's disk."""
        return self._kept.recall(kind, ids)

    def remember(self, kind: str, records: Sequence[tuple[ObjectId, bytes]]) -> None:
        """Keep what was read of objects on this machine's disk."""
        self._kept.remember(kind, records)

    def access(self) -> Mapping[str, str]:
        """Return the settings of boto3, and the credentials that it finds now."""
        settings = self._client.settings()
        if self._config.anonymous:
            return settings
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

    def get_many(self, uris: Sequence[str]) -> Iterator[StoredObject | SourceError]:
        """Read whole objects, many at once."""
        with closing(at_once.results(self._get_some, uris, _SMALL_READS)) as answers:
            for uri, answer in zip(uris, answers, strict=True):
                if isinstance(answer, tuple):
                    stored = self._small.stored_object(uri, answer)
                    yield self._again(self.get, uri) if stored is None else stored
                else:
                    yield answer

    def _get_some(
        self, uris: Sequence[str]
    ) -> Sequence[Answer | StoredObject | SourceError]:
        answers = self._small.try_all([s3_small.whole(uri) for uri in uris])
        return [
            self._again(self.get, uri) if answer is None else answer
            for uri, answer in zip(uris, answers, strict=True)
        ]

    def read_many(self, ranges: Sequence[ByteRange]) -> Iterator[bytes | SourceError]:
        """Read ranges of objects, many at once."""
        full = [wanted for wanted in ranges if wanted.size_bytes]
        with closing(at_once.results(self._read_some, full, _SMALL_READS)) as answers:
            for wanted in ranges:
                answer = next(answers) if wanted.size_bytes else b""
                if isinstance(answer, tuple):
                    data = self._small.range_of(wanted, answer)
                    yield self._again(self._read, wanted) if data is None else data
                else:
                    yield answer

    def _read_some(
        self, ranges: Sequence[ByteRange]
    ) -> Sequence[Answer | bytes | SourceError]:
        answers = self._small.try_all(list(map(s3_small.part, ranges)))
        return [
            self._again(self._read, wanted) if answer is None else answer
            for wanted, answer in zip(ranges, answers, strict=True)
        ]

    def _read(self, wanted: ByteRange) -> bytes:
        return read_range(self, wanted)

    def _again(
        self, read: Callable[[_Item], _Result], item: _Item
    ) -> _Result | SourceError:
        """Read with boto3 what obstore did not, or return what is wrong."""
        with self._few:
            try:
                found = read(item)
            except SourceError as error:
                return error
        self._small.was_in_vain()
        return found

    def _get_body(
        self,
        uri: str,
        **wanted: Any,
    ) -> tuple[GetObjectOutputTypeDef, bytes]:
        """Make a GET and read its whole body; start again if the body breaks off."""
        bucket, key = split(uri)
        for attempt in range(self.attempts):
            if attempt:
                self._pause(attempt)
            with translated(uri):
                response = self._get(Bucket=bucket, Key=key, **wanted)
                try:
                    data = response["Body"].read()
                    break
                except BROKEN as error:
                    response["Body"].close()
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
        bucket, key = split(object_id.uri)
        version = object_id.version
        condition = {"IfMatch": f'"{version}"'} if version else {}
        with translated(object_id.uri, offset, version):
            response = self._get(
                Bucket=bucket, Key=key, Range=f"bytes={offset}-{end - 1}", **condition
            )
        try:
            _require_requested(response, object_id, offset)
        except SourceError:
            response["Body"].close()
            raise
        return response["Body"]

    def resume(
        self, object_id: ObjectId, offset: int, end: int, attempt: int
    ) -> StreamingBody:
        """Make a GET for the rest after another one broke off, after a pause."""
        self._pause(attempt)
        return self.request(object_id, offset, end)

    def _get(self, **wanted: Any) -> GetObjectOutputTypeDef:
        """Make a GET and count every attempt that boto3 makes."""

        def get(client: S3Client) -> GetObjectOutputTypeDef:
            metadata: Mapping[str, Any] = {}
            try:
                response = client.get_object(**wanted, **self._payer)
                metadata = response["ResponseMetadata"]
            except ClientError as error:
                metadata = error.response["ResponseMetadata"]
                raise
            finally:
                retries = metadata.get("RetryAttempts", 0)
                self.traffic.add(gets=1 + retries, retries=retries)
            return response

        response = self._client.call(get)
        require_progress(response["Body"], self._config.request_timeout_s)
        return response

    def _pause(self, attempt: int) -> None:
        """Wait before a request is repeated, twice as long each time.

        The time is random, from half of it up: requests that failed together must not
        come back together.
        """
        pause_s = min(_FIRST_PAUSE_S * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
        time.sleep(random.uniform(pause_s / 2, pause_s))  # noqa: S311 - no secret
        self.traffic.add(retries=1)


class ObjectRange:
    """Byte stream over a range of an object, as it arrives.

    If a GET breaks off, another one requests the rest, after a pause that doubles with
    each attempt. The number of attempts is reset when 64 KiB have arrived, so their
    total is limited by the size of the range. Responses that became too slow count as
    progress only if they brought 64 KiB themselves.
    """

    def __init__(
        self, storage: S3Storage, object_id: ObjectId, position: int, end: int
    ) -> None:
        self._storage = storage
        self._object_id = object_id
        self._end = end
        self._body = storage.request(object_id, position, end)
        self.position = position
        self._begin = position  # of the last response
        self._breaks = 0  # since PROGRESS_BYTES have arrived
        self._first_break = position

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, at most `size_bytes`; empty only at the end."""
        wanted = min(size_bytes, self._end - self.position)
        if wanted <= 0:
            return b""
        while not (data := self._next(wanted)):
            self._begin = self.position
            self._body = self._storage.resume(
                self._object_id, self.position, self._end, self._breaks
            )
        self.position += len(data)
        self._storage.traffic.add(received_bytes=len(data))
        return data

    def close(self) -> None:
        """Close the response; the remaining bytes are not read."""
        self._end = self.position
        self._body.close()

    def _next(self, size_bytes: int) -> bytes:
        """Return the next bytes; none if the response broke off and may be resumed."""
        problem: Exception | None = None
        try:
            data = self._body.read(size_bytes)
        except BROKEN as error:
            problem = error
        else:
            if data:
                return data
        self._body.close()
        since = self._begin if isinstance(problem, TooSlowError) else self._first_break
        if self.position - since >= PROGRESS_BYTES:
            self._breaks = 0
        if not self._breaks:
            self._first_break = self.position
        self._breaks += 1
        if self._breaks < self._storage.attempts:
            return b""
        raise SourceError(
            self._object_id.uri,
            offset=self.position,
            expected=f"{self._end - self.position} bytes more",
            found=f"{problem or 'the end of the response'}, {self._breaks} times",
        ) from problem


def _stored_object(
    uri: str, response: GetObjectOutputTypeDef, size_bytes: int, data: bytes
) -> StoredObject:
    object_id = ObjectId(uri, size_bytes, version_of(uri, response))
    modified_ms = int(response["LastModified"].timestamp() * 1e3)
    return StoredObject(object_id, response["Metadata"], data, modified_ms)


def _require_requested(
    response: GetObjectOutputTypeDef, object_id: ObjectId, offset: int
) -> None:
    """Raise SourceError if the server ignored `Range` or `If-Match`; some do.

    A response that is too short is detected later, at the end of its stream.
    """
    version = version_of(object_id.uri, response) if object_id.version else ""
    content_range = response.get("ContentRange", "bytes 0-")
    if version == object_id.version and content_range.startswith(f"bytes {offset}-"):
        return
    if version != object_id.version:
        raise overwritten(object_id.uri, object_id.version)
    raise SourceError(
        object_id.uri,
        offset=offset,
        expected="the requested range",
        found=f"{content_range}...: the server ignores ranges",
    )
