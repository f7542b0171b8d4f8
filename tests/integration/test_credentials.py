"""Credentials that end or are replaced, at a server that checks signatures."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.config import StorageConfig
from sparkcache.errors import CredentialsError, SourceError
from sparkcache.storage import Traffic, open_storage
from sparkcache_pulsar.testing import StoredObject, synthetic_topic
from tests import gateway, leaks
from tests.integration.executor import TOPIC, Executor, digest, until
from tests.integration.nodes import CONFIG, clear, only_warning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway import Gateway

BUCKET = "offload"
LEDGERS = 2


class Credentials:
    """The file in which boto3 finds the credentials of this process and its nodes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, key_id: str, secret: str) -> None:
        self.path.write_text(
            f"[default]\naws_access_key_id={key_id}\naws_secret_access_key={secret}\n"
        )


@pytest.fixture
def server() -> Iterator[Gateway]:
    with gateway.serve(gateway.need(), key_id="owner", secret="owners") as server:
        server.put(BUCKET, synthetic_topic(TOPIC, LEDGERS << 20, ledgers=LEDGERS))
        yield server


@pytest.fixture
def credentials(
    server: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Credentials:
    """Those of a user whom the server knows, until they are replaced."""
    credentials = Credentials(tmp_path / "credentials")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials.path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.admit("first", "secret-of-first")
    credentials.write("first", "secret-of-first")
    return credentials


@pytest.fixture
def executor(
    server: Gateway,
    credentials: Credentials,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Executor]:
    """An executor whose node loads what its tasks read."""
    directory = tmp_path / "executor"
    directory.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(directory))
    config = replace(CONFIG, **access(server))
    executor = Executor(directory, f"s3://{BUCKET}", config)
    yield executor
    shutil.rmtree(directory, ignore_errors=True)
    until(lambda: not leaks.processes_with(executor.marker))


def access(server: Gateway) -> dict[str, Any]:
    return {
        "endpoint": server.endpoint,
        "region": "us-east-1",
        "path_style": True,
    }


def replace_user(server: Gateway, credentials: Credentials) -> None:
    server.dismiss("first")
    server.admit("second", "secret-of-second")
    credentials.write("second", "secret-of-second")


def test_a_node_finds_credentials_that_are_replaced(
    server: Gateway,
    credentials: Credentials,
    executor: Executor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scan = executor.scan()
    content = digest(executor.read(0, scan))
    clear(executor)
    replace_user(server, credentials)
    assert digest(executor.read(1, scan)) == content
    assert caplog.records == []
    assert executor.metrics().failures == 0


def test_a_task_reads_for_itself_while_only_the_node_is_refused(
    server: Gateway,
    executor: Executor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scan = executor.scan()
    content = digest(executor.read(0, scan))
    clear(executor)
    server.dismiss("first")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "owner")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "owners")
    assert digest(executor.read(1, scan)) == content
    assert "the node was refused" in only_warning(caplog)
    assert executor.metrics().failures == 1


def test_a_task_that_is_refused_as_its_node_is_fails(
    server: Gateway, executor: Executor
) -> None:
    scan = executor.scan()
    server.dismiss("first")
    with pytest.raises(CredentialsError, match="a rejected access key"):
        digest(executor.read(0, scan))


def test_a_secret_that_is_wrong(
    server: Gateway, credentials: Credentials, executor: Executor
) -> None:
    scan = executor.scan()
    credentials.write("first", "not-the-secret")
    with pytest.raises(CredentialsError, match="a rejected signature"):
        digest(executor.read(0, scan))


def test_a_storage_of_a_stream_outlives_its_credentials(
    server: Gateway, credentials: Credentials
) -> None:
    """The planner of a stream keeps its storage as long as the query runs."""
    storage = open_storage(f"s3://{BUCKET}", StorageConfig(**access(server)), Traffic())
    listed = list(storage.list())
    replace_user(server, credentials)
    assert list(storage.list()) == listed
    server.dismiss("second")
    with pytest.raises(CredentialsError):
        list(storage.list())


def test_an_object_that_was_overwritten_is_refused(
    server: Gateway, executor: Executor
) -> None:
    scan = executor.scan()
    planned = scan.slices[-1].ledger.object
    before = open_storage(scan.root, scan.storage, Traffic()).get(planned.uri)
    key = planned.uri.removeprefix(f"s3://{BUCKET}/")
    other = StoredObject(key, dict(before.metadata), bytes(len(before.data)))
    server.put(BUCKET, [other])
    with pytest.raises(SourceError, match="it was overwritten") as caught:
        digest(executor.read(0, scan))
    assert caught.value.uri == planned.uri
