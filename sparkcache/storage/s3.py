"""Objects in S3, or in a server that speaks its protocol, through boto3.

boto3 tries a request again until its headers have come. What breaks later, in the
body, is taken up here: another GET for the rest, of the same ETag.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import boto3
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from urllib3.exceptions import HTTPError

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId
from sparkcache.storage.empty import EmptyRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from botocore.response import StreamingBody
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

    from sparkcache.config import CacheConfig
    from sparkcache.connector import ByteStream
    from sparkcache.storage.traffic import Traffic

_MOST_CONNECTIONS = 32
_FIRST_PAUSE_S = 0.1
_AWS = ".amazonaws.com"
_BROKEN = (BotoCoreError, HTTPError, OSError)
_BY_CODE = {
    "NoSuchBucket": ("a bucket of that name", "none"),
    "NoSuchKey": ("the object that was planned", "none of that name"),
    "404": ("the object that was planned", "none of that name"),
    "AccessDenied": ("leave to read", "access denied"),
    "403": ("leave to read", "access denied"),
    "InvalidRange": ("bytes at that offset", "the end of the object before it"),
    "SignatureDoesNotMatch": ("valid credentials", "a signature refused"),
    "InvalidAccessKeyId": ("valid credentials", "an access key refused"),
}


class S3Storage:
    """Reads objects of one bucket, below a prefix."""

    def __init__(self, root: str, config: CacheConfig, traffic: Traffic) -> None:
        self.root = root
        self.traffic = traffic
        self.attempts = config.storage_attempts
        self._config = config
        self._bucket, self._prefix = _split(root)

    def __repr__(self) -> str:
        return f"S3Storage({self.root}, {self.traffic})"

    def list(self) -> Iterator[ObjectId]:
        """Yield every object below the root, page by page, in the order of names."""
        prefix = f"{self._prefix}/" if self._prefix else ""
        with _translated(self.root):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            for page in pages:
                for found in page.get("Contents", ()):
                    uri = f"s3://{self._bucket}/{found['Key']}"
                    yield ObjectId(uri, found["Size"], found["ETag"].strip('"'))

    def get(self, uri: str) -> StoredObject:
        """Read a whole object."""
        response, data = self._get_body(uri)
        object_id = ObjectId(uri, len(data), response["ETag"].strip('"'))
        return StoredObject(object_id, response["Metadata"], data)

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        """Read the last bytes of an object."""
        response, data = self._get_body(uri, Range=f"bytes=-{size_bytes}")
        _, _, total = response.get("ContentRange", "").rpartition("/")
        whole_bytes = int(total) if total.isdecimal() else len(data)
        object_id = ObjectId(uri, whole_bytes, response["ETag"].strip('"'))
        return StoredObject(object_id, response["Metadata"], data[-size_bytes:])

    def access(self) -> Mapping[str, str]:
        """Return what boto3 has found, so that there is one way to configure it."""
        endpoint = self._client.meta.endpoint_url
        found = {"aws_region": self._client.meta.region_name}
        if self._config.path_style or _AWS not in endpoint:
            found["aws_endpoint"] = endpoint
            found["aws_virtual_hosted_style_request"] = "false"
            found["aws_allow_http"] = str(endpoint.startswith("http:")).lower()
        credentials = boto3.session.Session().get_credentials()
        if credentials is None:
            return found
        frozen = credentials.get_frozen_credentials()
        secrets = {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
            "aws_session_token": frozen.token,
        }
        return found | {name: secret for name, secret in secrets.items() if secret}

    def _get_body(
        self,
        uri: str,
        **wanted: Any,
    ) -> tuple[GetObjectOutputTypeDef, bytes]:
        """Make a GET and read all of its answer, anew if that breaks off."""
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
        """Read a range of exactly this version of an object, if it has one."""
        if size_bytes == 0:
            return EmptyRange(offset)
        return ObjectRange(self, object_id, offset, offset + size_bytes)

    def request(self, object_id: ObjectId, offset: int, end: int) -> StreamingBody:
        """Make one GET for the bytes from `offset` to `end`, which is not included."""
        bucket, key = _split(object_id.uri)
        version = object_id.version
        only_if = {"IfMatch": f'"{version}"'} if version else {}
        with _translated(object_id.uri, offset, version):
            response = self._get(
                Bucket=bucket, Key=key, Range=f"bytes={offset}-{end - 1}", **only_if
            )
        _require_as_asked(response, object_id, offset)
        return response["Body"]

    def resume(
        self, object_id: ObjectId, offset: int, end: int, attempt: int
    ) -> StreamingBody:
        """Make the GET for what is left after one has broken off, in a while."""
        self._pause(attempt)
        return self.request(object_id, offset, end)

    def _get(self, **wanted: Any) -> GetObjectOutputTypeDef:
        """Make a GET, which counts as often as boto3 has tried it."""
        metadata: Mapping[str, Any] = {}
        try:
            response = self._client.get_object(**wanted)
            metadata = response["ResponseMetadata"]
        except ClientError as error:
            metadata = error.response["ResponseMetadata"]
            raise
        finally:
            again = metadata.get("RetryAttempts", 0)
            self.traffic.add(gets=1 + again, retries=again)
        return response

    def _pause(self, attempt: int) -> None:
        """Wait before a request is made again, twice as long each time."""
        time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
        self.traffic.add(retries=1)

    @cached_property
    def _client(self) -> S3Client:
        """Made when it is needed: it may find settings that are no good."""
        config = self._config
        return boto3.session.Session().client(
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


class ObjectRange:
    """The bytes of a range, as they arrive.

    A GET that breaks off is followed by one for the rest, after a pause that
    doubles each time; progress starts the count anew.
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
        """Return the next bytes: at most `size_bytes`, none only at the end."""
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
                found=f"{problem or 'the end of the answer'}, "
                f"{self._storage.attempts} times",
            ) from problem
        self.position += len(data)
        self._storage.traffic.add(received_bytes=len(data))
        return data

    def close(self) -> None:
        """Give up the rest."""
        self._end = self.position
        self._body.close()


def _require_as_asked(
    response: GetObjectOutputTypeDef, object_id: ObjectId, offset: int
) -> None:
    """Check that a server has heeded `Range` and `If-Match`; not all do.

    That what was asked for is shorter is told by its stream, where it ends.
    """
    found = response["ETag"].strip('"') if object_id.version else ""
    begins = response.get("ContentRange", "bytes 0-")
    if found == object_id.version and begins.startswith(f"bytes {offset}-"):
        return
    response["Body"].close()
    if found != object_id.version:
        raise _overwritten(object_id.uri, object_id.version)
    raise SourceError(
        object_id.uri,
        offset=offset,
        expected="the range asked for",
        found=f"{begins}...: the server does not heed ranges",
    )


@contextmanager
def _translated(
    uri: str, offset: int | None = None, version: str = ""
) -> Iterator[None]:
    """Turn what boto3 raises into a SourceError about this object."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "?")
        if code in {"PreconditionFailed", "412"}:
            raise _overwritten(uri, version) from error
        expected, found = _BY_CODE.get(code, ("an answer", str(error)))
        raise SourceError(uri, offset=offset, expected=expected, found=found) from error
    except NoCredentialsError as error:
        raise SourceError(
            uri,
            expected="credentials in the environment, a profile or the machine's role",
            found="none",
        ) from error
    except (*_BROKEN, ValueError) as error:  # ValueError: no URL, no name of a region
        raise SourceError(
            uri, offset=offset, expected="an answer", found=str(error)
        ) from error


def _overwritten(uri: str, version: str) -> SourceError:
    return SourceError(
        uri, expected=f"version {version}, as planned", found="it was overwritten"
    )


def _split(uri: str) -> tuple[str, str]:
    """Return bucket and key; the key is whatever follows, however it is spelt."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
