"""Stores for objects: memory, local directory, S3; each with its storage."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from sparkcache.config import StorageConfig
from sparkcache.storage import Traffic, normal_root, open_storage
from sparkcache.testing import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId
    from sparkcache.testing.s3_server import S3Server

_NOBODY = 65534
_numbers = count()


class Store(ABC):
    """Holds objects that a test stores and the storage under test reads."""

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
        """Return the object with this name, as the storage lists it."""
        uri = f"{self.storage.root}/{name}"
        return next(stored for stored in self.storage.list() if stored.uri == uri)


class MemoryStore(Store):
    def __init__(self) -> None:
        self.storage: MemoryStorage = MemoryStorage()

    def put(
        self, name: str, data: bytes, metadata: Mapping[str, str] | None = None
    ) -> None:
        self.storage.put(name, data, metadata)

    def remove(self, name: str) -> None:
        self.storage.remove(name)


class LocalStore(Store):
    keeps_metadata = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.traffic = Traffic()
        root = normal_root(str(directory))
        self.storage = open_storage(root, StorageConfig(), self.traffic)

    def put(
        self,
        name: str,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(
            "a new file"
        )  # another inode, even within one tick of the clock
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


class S3Store(Store):
    """A prefix in a bucket of its own."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.bucket = f"bucket-{next(_numbers)}"
        server.create_bucket(self.bucket)
        self.traffic = Traffic()
        self.storage = self.open()

    def open(self, **settings: Any) -> Storage:
        """Return another storage of the same prefix, with different settings."""
        return open_storage(
            f"s3://{self.bucket}/prefix",
            StorageConfig(**{"storage_attempts": 3, **settings}),
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
