"""boto3's client for S3, replaced when its credentials are refused.

boto3 looks credentials up once for each session. Processes that live long outlast them:
a file of credentials is rewritten, a session token expires.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import boto3
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError

from sparkcache.storage.s3_errors import is_refused
from sparkcache.storage.s3_pages import parse_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3.client import S3Client

    from sparkcache.config import StorageConfig

_MOST_CONNECTIONS = 32

_Response = TypeVar("_Response")
_log = logging.getLogger(__name__)


class RenewedClient:
    """A client that looks credentials up again if they are refused. Thread-safe."""

    def __init__(self, config: StorageConfig) -> None:
        self._config = config
        self._lock = Lock()
        self._client: S3Client | None = None

    def __repr__(self) -> str:
        return f"RenewedClient({'in use' if self._client else 'not used yet'})"

    def call(self, request: Callable[[S3Client], _Response]) -> _Response:
        """Make a request; make it once more, with new credentials, if it is refused."""
        client = self.get()
        try:
            return request(client)
        except (ClientError, BotoCoreError) as error:
            if self._config.anonymous or not is_refused(error):
                raise
            _log.info("looking up credentials again: %s", error)
        return request(self._renewed(client))

    def get(self) -> S3Client:
        """Return the client, created on first use: its settings may be invalid."""
        with self._lock:
            if self._client is None:
                self._client = self._create()
            return self._client

    def _renewed(self, refused: S3Client) -> S3Client:
        """Return a client other than the refused one; another thread may have it."""
        with self._lock:
            if self._client is refused:
                self._client = self._create()
            assert self._client is not None, "it was refused"
            return self._client

    def _create(self) -> S3Client:
        config = self._config
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=config.endpoint,
            region_name=config.region,
            config=Config(
                connect_timeout=config.storage_timeout_s,
                read_timeout=config.storage_timeout_s,
                max_pool_connections=_MOST_CONNECTIONS,
                signature_version=UNSIGNED if config.anonymous else None,
                retries={
                    "mode": "standard",
                    "total_max_attempts": config.storage_attempts,
                },
                s3={"addressing_style": "path" if config.path_style else "auto"},
            ),
        )
        parse_objects(client)
        return client
