"""Loads that a loader is told to begin before it gets to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

from sparkcache.fetch.load import begin
from sparkcache.storage import Traffic, open_storage, storage_settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from sparkcache.config import CacheConfig
    from sparkcache.connector import ByteStream, Storage
    from sparkcache.fetch.load import Load

_THREADS = 8


class Opener:
    """Asks storages for loads, in the background where there is time.

    What is prepared has sent its request, and waits for nothing but to be read.
    """

    def __init__(self) -> None:
        self._traffic = Traffic()
        self._told = Traffic()
        self._pool = ThreadPoolExecutor(_THREADS)
        self._prepared: dict[int, Future[ByteStream]] = {}
        self._storage = lru_cache(maxsize=16)(self._make)

    def __repr__(self) -> str:
        return f"Opener({len(self._prepared)} prepared)"

    def prepare(self, number: int, root: str, config: CacheConfig, load: Load) -> None:
        """Begin a load that will be opened, or forgotten, by its number."""
        storage = self._storage(root, storage_settings(config))
        self._prepared[number] = self._pool.submit(begin, storage, load)

    def forget(self, number: int) -> None:
        """Give up a load that was prepared."""
        self._prepared.pop(number).add_done_callback(_close)

    def open(
        self, number: int, root: str, config: CacheConfig, load: Load
    ) -> ByteStream:
        """Return the bytes of a load, prepared or not. Raises SourceError."""
        prepared = self._prepared.pop(number, None)
        if prepared is not None:
            return prepared.result()
        return begin(self._storage(root, storage_settings(config)), load)

    def spent(self) -> Traffic:
        """Return what was asked of storages since the last call."""
        before, self._told = self._told, self._traffic.so_far()
        return self._told - before

    def _make(self, root: str, config: CacheConfig) -> Storage:
        return open_storage(root, config, self._traffic)


def _close(opening: Future[ByteStream]) -> None:
    if opening.exception() is None:
        opening.result().close()
