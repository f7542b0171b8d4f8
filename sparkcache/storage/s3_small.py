"""Small reads from S3 through obstore, at a fraction of boto3's processor time.

A read is tried once. What does not succeed is left to boto3, which repeats it, looks
credentials up again, and says what is wrong. Where boto3 succeeds and obstore never
does, such as at a server that it does not understand, it is not tried any more.

Threads of obstore's do not survive a fork: in a process that was forked after it was
used, boto3 reads.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sparkcache.connector import StoredObject
from sparkcache.model import ObjectId
from sparkcache.storage.s3_listings import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from botocore.credentials import ReadOnlyCredentials
    from obstore import Bytes, GetOptions, GetResult
    from obstore.store import (
        ClientConfig,
        S3Config,
        S3Credential,
        S3CredentialProvider,
        S3Store,
    )

    from sparkcache.config import StorageConfig
    from sparkcache.connector import ByteRange
    from sparkcache.storage.s3_client import RenewedClient
    from sparkcache.storage.traffic import Traffic

    Request: TypeAlias = tuple[str, GetOptions]
    Answer: TypeAlias = tuple[GetResult, Bytes]

_MOST_IN_VAIN = 3
_THREADS_VARIABLE = "TOKIO_WORKER_THREADS"
_ATTRIBUTES = frozenset(
    {
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Storage-Class",
    }
)
_log = logging.getLogger(__name__)
_threads_lock = Lock()
_threads_of = 0
"""The process that has obstore's threads; 0 if none has."""


def whole(uri: str) -> Request:
    """Return the request for a whole object."""
    return uri, {}


def part(wanted: ByteRange) -> Request:
    """Return the request for a range, of the same version if it has one."""
    object_id, offset, size_bytes = wanted
    options: GetOptions = {"range": (offset, offset + size_bytes)}
    if object_id.version:
        options["if_match"] = f'"{object_id.version}"'
    return object_id.uri, options


class SmallReads:
    """Reads of whole objects, or of ranges, that are tried once. Thread-safe.

    Threads make the requests. What to make of an answer is left to the thread that
    takes the results: Python runs one thread at a time, and each change costs.
    """

    def __init__(
        self, config: StorageConfig, client: RenewedClient, traffic: Traffic
    ) -> None:
        self._config = config
        self._client = client
        self._traffic = traffic
        self._lock = Lock()
        self._stores: dict[str, tuple[ReadOnlyCredentials | None, S3Store]] = {}
        self._succeeded = False
        self._in_vain = 0

    def __repr__(self) -> str:
        return f"SmallReads({'in use' if self._stores else 'not used yet'})"

    def try_all(self, requests: Sequence[Request]) -> list[Answer | None]:
        """Make requests, one after the other; None stands for what boto3 is to do."""
        if not self._is_possible():
            return [None] * len(requests)
        store, store_of = None, ""
        failures = 0
        answers: list[Answer | None] = []
        for uri, options in requests:
            bucket, key = split(uri)
            # It would take slashes at both ends away.
            is_plain = key[:1] != "/" != key[-1:]
            try:
                if bucket != store_of:
                    store, store_of = self._store(bucket), bucket
                if store is None or not is_plain:
                    answers.append(None)
                    continue
                found = store.get(key, options=options)
                answers.append((found, found.bytes()))
            except Exception as error:  # obstore's base class of errors is not public
                _log.debug("%s: left to boto3: %s", uri, error)
                answers.append(None)
                failures += 1
        arrived = [len(answer[1]) for answer in answers if answer is not None]
        self._traffic.add(
            gets=len(arrived) + failures,
            received_bytes=sum(arrived),
            retries=failures,
        )
        return answers

    def stored_object(self, uri: str, answer: Answer) -> StoredObject | None:
        """Return the whole object of an answer; None if boto3 is to read it."""
        found, body = answer
        meta = found.meta
        etag = (meta["e_tag"] or "").strip('"')
        if not etag or len(body) != meta["size"]:
            return None
        self._succeeded = True
        attributes = found.attributes
        metadata = {
            name: attributes[name] for name in attributes if name not in _ATTRIBUTES
        }
        modified_ms = int(meta["last_modified"].timestamp() * 1e3)
        object_id = ObjectId(uri, len(body), etag)
        return StoredObject(object_id, metadata, bytes(body), modified_ms)

    def range_of(self, wanted: ByteRange, answer: Answer) -> bytes | None:
        """Return the wanted range of an answer; None if boto3 is to read it."""
        found, body = answer
        object_id, offset, size_bytes = wanted
        etag = (found.meta["e_tag"] or "").strip('"')
        if object_id.version not in ("", etag) or len(body) != size_bytes:
            return None
        if found.range != (offset, offset + size_bytes):
            return None
        self._succeeded = True
        return bytes(body)

    def was_in_vain(self) -> None:
        """Count a read in which boto3 succeeded after obstore had not."""
        if self._succeeded:
            return
        with self._lock:
            self._in_vain += 1
            if self._in_vain == _MOST_IN_VAIN:
                _log.warning(
                    "small objects are read with boto3, which takes longer: obstore "
                    "cannot read from this bucket"
                )

    def _is_possible(self) -> bool:
        return self._in_vain < _MOST_IN_VAIN and _has_threads()

    def _store(self, bucket: str) -> S3Store | None:
        """Return a store with the credentials that boto3 uses now; None without any."""
        credentials = None
        if not self._config.anonymous:
            credentials = self._client.credentials()
            if credentials is None:
                return None
        with self._lock:
            used, store = self._stores.get(bucket, (None, None))
            if store is None or used != credentials:
                store = self._open(bucket, credentials)
                self._stores[bucket] = credentials, store
            return store

    def _open(self, bucket: str, credentials: ReadOnlyCredentials | None) -> S3Store:
        from obstore.store import S3Store

        config: dict[str, Any] = dict(self._client.settings())
        if "aws_endpoint" in config:  # as this one the environment does not override it
            config["aws_endpoint_url_s3"] = config.pop("aws_endpoint")
        patience = timedelta(seconds=self._config.storage_timeout_s)
        options: ClientConfig = {
            "allow_http": config.pop("aws_allow_http", "false") == "true",
            "connect_timeout": patience,
            "read_timeout": patience,
            "timeout": timedelta(seconds=self._config.request_timeout_s),
        }
        bundle = self._client.ca_bundle()
        if bundle:
            options["root_certificate"] = Path(bundle).read_bytes()
        return S3Store(
            bucket,
            config=cast("S3Config", config),
            client_options=options,
            retry_config={"max_retries": 0},
            credential_provider=_provider(credentials) if credentials else None,
        )


def _provider(credentials: ReadOnlyCredentials) -> S3CredentialProvider:
    """Return what provides a store with credentials, which are always the same."""
    provided: S3Credential = {
        "access_key_id": credentials.access_key or "",
        "secret_access_key": credentials.secret_key or "",
        "token": credentials.token,
        "expires_at": None,
    }
    return lambda: provided


def _has_threads() -> bool:
    """Return whether obstore has threads in this process; start them if none has.

    One thread is enough, and each further one is woken for nothing. Only the
    environment sets their number.
    """
    global _threads_of
    if not _threads_of:
        with _threads_lock:
            if not _threads_of:
                _start()
                _threads_of = os.getpid()
    return _threads_of == os.getpid()


def _start() -> None:
    from obstore.store import MemoryStore

    is_set = _THREADS_VARIABLE in os.environ
    if not is_set:
        os.environ[_THREADS_VARIABLE] = "1"
    try:
        MemoryStore().put("any", b"")
    finally:
        if not is_set:
            del os.environ[_THREADS_VARIABLE]
