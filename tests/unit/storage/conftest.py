"""Places that objects lie in, each with the storage that reads them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.config import CacheConfig
from sparkcache.storage import Traffic, normal_root, open_storage
from sparkcache.testing import MemoryStorage
from sparkcache.testing.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId

_NOBODY = 65534
_numbers = count()


class Place(ABC):
    """Where a test puts objects, and the storage under test reads them."""

    keeps_metadata = True
    storage: Storage

    @abstractmethod
    def put(
        self, name: str, data: bytes, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Store an object."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object."""

    def find(self, name: str) -> ObjectId:
        """Return the object of that name, as the storage lists it."""
        uri = f"{self.storage.root}/{name}"
        return next(found for found in self.storage.list() if found.uri == uri)


class MemoryPlace(Place):
    def __init__(self) -> None:
        self.storage: MemoryStorage = MemoryStorage()

    def put(
        self, name: str, data: bytes, metadata: Mapping[str, str] | None = None
    ) -> None:
        self.storage.put(name, data, metadata)

    def remove(self, name: str) -> None:
        self.storage.remove(name)


class LocalPlace(Place):
    keeps_metadata = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.traffic = Traffic()
        root = normal_root(str(directory))
        self.storage = open_storage(root, CacheConfig(), self.traffic)

    def put(
        self,
        name: str,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name("a new file")  # another inode, however fast this goes
        new.write_bytes(data)
        new.rename(path)

    def remove(self, name: str) -> None:
        (self.directory / name).unlink()

    @contextmanager
    def refused(self) -> Iterator[None]:
        mode = self.directory.stat().st_mode
        self.directory.chmod(0)
        user = os.geteuid()
        if not user:
            os.seteuid(_NOBODY)
        try:
            yield
        finally:
            os.seteuid(user)
            self.directory.chmod(mode)


class S3Place(Place):
    """A prefix in a bucket of its own."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.bucket = f"bucket-{next(_numbers)}"
        server.create_bucket(self.bucket)
        self.traffic = Traffic()
        self.storage = self.open()

    def open(self, **settings: Any) -> Storage:
        """Return another storage, with settings of its own."""
        return open_storage(
            f"s3://{self.bucket}/prefix",
            CacheConfig(**{"storage_attempts": 3, **settings}),
            self.traffic,
        )

    def put(
        self, name: str, data: bytes, metadata: Mapping[str, str] | None = None
    ) -> None:
        self.server.put(self.bucket, f"prefix/{name}", data, metadata)

    def remove(self, name: str) -> None:
        self.server.delete(self.bucket, f"prefix/{name}")

    @contextmanager
    def refused(self) -> Iterator[None]:
        self.server.refuse()
        yield
        self.server.heal()


@pytest.fixture(scope="session", autouse=True)
def running_server() -> Iterator[S3Server]:
    """The one server; it begins before any test, so that it is none of its leaks."""
    with S3Server() as server:
        server.create_bucket("warm-up")
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
    """Record the pauses that we and boto3 would have made; make none."""
    slept: list[float] = []
    no_time = SimpleNamespace(sleep=slept.append)
    monkeypatch.setattr("sparkcache.storage.s3.time", no_time)
    monkeypatch.setattr("botocore.endpoint.time", no_time)
    return slept


@pytest.fixture
def s3(server: S3Server) -> S3Place:
    return S3Place(server)


@pytest.fixture
def local(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path)


@pytest.fixture(params=["memory", "local", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return MemoryPlace()
    found: Place = request.getfixturevalue(request.param)
    return found
