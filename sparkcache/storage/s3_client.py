"""boto3's client for S3, replaced when its credentials are refused.

boto3 looks credentials up once for each session. Processes that live long outlast them:
a file of credentials is rewritten, a session token expires.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError

from sparkcache.storage.s3_errors import is_refused
from sparkcache.storage.s3_pages import parse_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.credentials import ReadOnlyCredentials
    from botocore.session import Session
    from mypy_boto3_s3.client import S3Client

    from sparkcache.config import StorageConfig

MOST_CONNECTIONS = 32
"""How many requests one client makes at once without more connections."""

_AWS = ".amazonaws.com"

_Response = TypeVar("_Response")
_log = logging.getLogger(__name__)


class RenewedClient:
    """A client that looks credentials up again if they are refused. Thread-safe."""

    def __init__(self, config: StorageConfig) -> None:
        self._config = config
        self._lock = Lock()
        self._client: S3Client | None = None
        self._session: Session | None = None

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

    def credentials(self) -> ReadOnlyCredentials | None:
        """Return the credentials with which it signs now; None if there are none."""
        credentials = self._used_session().get_credentials()
        return None if credentials is None else credentials.get_frozen_credentials()

    def settings(self) -> dict[str, str]:
        """Return endpoint, region and who pays, as the object_store library wants them.

        Taken from boto3's client, so that only boto3 is configured.
        """
        config = self._config
        meta = self.get().meta
        settings = {"aws_region": meta.region_name}
        if config.path_style or _AWS not in meta.endpoint_url:
            is_plain = meta.endpoint_url.startswith("http:")
            settings["aws_endpoint"] = meta.endpoint_url
            settings["aws_virtual_hosted_style_request"] = "false"
            settings["aws_allow_http"] = str(is_plain).lower()
        if config.requester_pays:
            settings["aws_request_payer"] = "true"
        if config.anonymous:
            settings["aws_skip_signature"] = "true"
        return settings

    def ca_bundle(self) -> str | None:
        """Return the file of further certificates to trust; None if there is none."""
        bundle: str | None = self._used_session().get_config_variable("ca_bundle")
        return bundle

    def _used_session(self) -> Session:
        self.get()
        assert self._session is not None, "the client has one"
        return self._session

    def _renewed(self, refused: S3Client) -> S3Client:
        """Return a client other than the refused one; another thread may have it."""
        with self._lock:
            if self._client is refused:
                self._client = self._create()
            assert self._client is not None, "it was refused"
            return self._client

    def _create(self) -> S3Client:
        config = self._config
        self._session = botocore.session.get_session()
        client = boto3.session.Session(botocore_session=self._session).client(
            "s3",
            endpoint_url=config.endpoint,
            region_name=config.region,
            config=Config(
                connect_timeout=config.storage_timeout_s,
                read_timeout=config.storage_timeout_s,
                max_pool_connections=MOST_CONNECTIONS,
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
