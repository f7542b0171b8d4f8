"""One running S3 server, and a store of each kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import StorageConfig
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing.s3_server import S3Server
from tests.unit.storage.stores import LocalStore, MemoryStore, S3Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.storage.stores import Store


@pytest.fixture(scope="session", autouse=True)
def running_server() -> Iterator[S3Server]:
    """The only server; started before any test, so that none reports it as a leak."""
    with S3Server() as server:
        server.create_bucket("warm-up")
        with server.as_environment():  # obstore keeps files open from its first use
            storage = open_storage("s3://warm-up", StorageConfig(), Traffic())
            list(storage.get_many(["s3://warm-up/none"]))
        yield server


@pytest.fixture
def server(running_server: S3Server) -> Iterator[S3Server]:
    with running_server.as_environment():
        yield running_server
    running_server.heal()
    running_server.behave()
    running_server.forget()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses of this package and of boto3 without sleeping."""
    slept: list[float] = []
    no_time = SimpleNamespace(sleep=slept.append)
    monkeypatch.setattr("sparkcache.storage.s3.time", no_time)
    monkeypatch.setattr("botocore.endpoint.time", no_time)
    return slept


@pytest.fixture
def s3(server: S3Server) -> S3Store:
    return S3Store(server)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.fixture(params=["memory", "local", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return MemoryStore()
    store: Store = request.getfixturevalue(request.param)
    return store
