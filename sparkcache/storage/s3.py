"""Objects in S3, or in a server that speaks its protocol, through boto3.

boto3 tries a request again until its headers have come. What breaks later, in the
body of a ranged GET, is taken up here: another GET for the rest, of the same ETag.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from sparkcache.connector import StoredObject
from sparkcache.errors import SourceError
from sparkcache.model import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.response import StreamingBody
    from mypy_boto3_s3.client import S3Client

    from sparkcache.config import CacheConfig
    from sparkcache.storage.traffic import Traffic

_FIRST_PAUSE_S = 0.1
_BY_CODE = {
    "NoSuchBucket": ("a bucket of that name", "none"),
    "NoSuchKey": ("the object that was planned", "none of that name"),
    "404": ("the object that was planned", "none of that name"),
    "AccessDenied": ("leave to read", "access denied"),
    "403": ("leave to read", "access denied"),
    "SignatureDoesNotMatch": ("valid credentials", "a signature refused"),
    "InvalidAccessKeyId": ("valid credentials", "an access key refused"),
}


class S3Storage:
    """Reads objects of one bucket, below a prefix."""

    def __init__(self, root: str, config: CacheConfig, traffic: Traffic) -> None:
        self.root = root
        self.traffic = traffic
        self.attempts = config.storage_attempts
        self._bucket, self._prefix = _split(root)
        self._client: S3Client = boto3.session.Session().client(
            "s3",
            endpoint_url=config.endpoint,
            region_name=config.region,
            config=Config(
                connect_timeout=config.storage_timeout_s,
                read_timeout=config.storage_timeout_s,
                retries={"mode": "standard", "total_max_attempts": self.attempts},
                s3={"addressing_style": "path" if config.path_style else "auto"},
            ),
        )

    def list(self) -> Iterator[ObjectId]:
        """Yield every object below the root, page by page, in the order of names."""
        prefix = f"{self._prefix}/" if self._prefix else ""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        with _translated(self.root):
            for page in pages:
                for found in page.get("Contents", ()):
                    uri = f"s3://{self._bucket}/{found['Key']}"
                    yield ObjectId(uri, found["Size"], found["ETag"].strip('"'))

    def get(self, uri: str) -> StoredObject:
        """Read a whole object."""
        bucket, key = _split(uri)
        with _translated(uri):
            response = self._client.get_object(Bucket=bucket, Key=key)
            data = response["Body"].read()
        self.traffic.gets += 1
        self.traffic.received_bytes += len(data)
        object_id = ObjectId(uri, len(data), response["ETag"].strip('"'))
        return StoredObject(object_id, response["Metadata"], data)

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> ObjectRange:
        """Read a range of exactly this version of an object."""
        return ObjectRange(self, object_id, offset, offset + size_bytes)

    def request(self, object_id: ObjectId, offset: int, end: int) -> StreamingBody:
        """Make one GET for the bytes from `offset` to `end`, which is not included."""
        bucket, key = _split(object_id.uri)
        with _translated(object_id.uri, version=object_id.version):
            response = self._client.get_object(
                Bucket=bucket,
                Key=key,
                Range=f"bytes={offset}-{end - 1}",
                IfMatch=f'"{object_id.version}"',
            )
        self.traffic.gets += 1
        return response["Body"]


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
        for attempt in range(self._storage.attempts):
            try:
                data = self._body.read(wanted)
                if data:
                    break
                problem: Exception | None = None
            except (BotoCoreError, OSError) as error:
                problem = error
            self._resume(attempt)
        else:
            raise SourceError(
                self._object_id.uri,
                offset=self.position,
                expected=f"{self._end - self.position} bytes more",
                found=f"{problem or 'the end of the answer'}, "
                f"{self._storage.attempts} times",
            ) from problem
        self.position += len(data)
        self._storage.traffic.received_bytes += len(data)
        return data

    def close(self) -> None:
        """Give up the rest."""
        self._body.close()

    def _resume(self, attempt: int) -> None:
        self._body.close()
        time.sleep(_FIRST_PAUSE_S * 2**attempt)
        self._storage.traffic.retries += 1
        self._body = self._storage.request(self._object_id, self.position, self._end)


@contextmanager
def _translated(uri: str, version: str = "") -> Iterator[None]:
    """Turn what boto3 raises into a SourceError about this object."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "?")
        if code in {"PreconditionFailed", "412"}:
            expected, found = f"version {version}, as planned", "it was overwritten"
        else:
            expected, found = _BY_CODE.get(code, ("an answer", str(error)))
        raise SourceError(uri, expected=expected, found=found) from error
    except NoCredentialsError as error:
        raise SourceError(
            uri,
            expected="credentials in the environment, a profile or the machine's role",
            found="none",
        ) from error
    except (BotoCoreError, OSError) as error:
        raise SourceError(uri, expected="an answer", found=str(error)) from error


def _split(uri: str) -> tuple[str, str]:
    """Return bucket and key; the key is whatever follows, however it is spelt."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
