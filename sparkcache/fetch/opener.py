"""The requests of loads; those of prepared loads are sent early."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

from sparkcache.fetch.load import begin
from sparkcache.fetch.together import fetch_all
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from sparkcache.config import StorageConfig
    from sparkcache.connector import ByteStream, Storage
    from sparkcache.errors import SourceError
    from sparkcache.fetch.load import Load

_THREADS = 8


class Opener:
    """Requests loads from storages; prepared loads are requested in the background.

    A prepared load has sent its request, and its response is ready to be read.

    Args:
        on_traffic: Called with all counts of `Traffic` whenever one has changed.

    """

    def __init__(
        self, on_traffic: Callable[[int, int, int], None] | None = None
    ) -> None:
        self._traffic = Traffic(on_add=on_traffic)
        self._reported = Traffic()
        self._pool = ThreadPoolExecutor(_THREADS)
        self._prepared: dict[int, Future[ByteStream]] = {}
        self._fetched: dict[int, Future[list[bytes | SourceError]]] = {}
        self.storage = lru_cache(maxsize=16)(self._open_storage)

    def __repr__(self) -> str:
        return f"Opener({len(self._prepared) + len(self._fetched)} prepared)"

    def prepare(
        self,
        number: int,
        root: str,
        config: StorageConfig,
        load: Load,
    ) -> None:
        """Request a load that will be opened, or forgotten, by its number."""
        storage = self.storage(root, config)
        self._prepared[number] = self._pool.submit(begin, storage, load)

    def prepare_together(
        self, number: int, root: str, config: StorageConfig, loads: Sequence[Load]
    ) -> None:
        """Fetch small loads that will be used, or forgotten, by their number."""
        storage = self.storage(root, config)
        self._fetched[number] = self._pool.submit(fetch_all, storage, loads)

    def forget(self, number: int) -> None:
        """Drop a prepared load and close its stream."""
        if self._fetched.pop(number, None) is None:
            self._prepared.pop(number).add_done_callback(_close)

    def fetch(
        self, number: int, storage: Storage, loads: Sequence[Load]
    ) -> list[bytes | SourceError]:
        """Return the bytes of small loads, prepared or not."""
        fetched = self._fetched.pop(number, None)
        return fetch_all(storage, loads) if fetched is None else fetched.result()

    def open(
        self, number: int, root: str, config: StorageConfig, load: Load
    ) -> ByteStream:
        """Return the byte stream of a load, prepared or not. Raises SourceError."""
        prepared = self._prepared.pop(number, None)
        if prepared is not None:
            return prepared.result()
        return begin(self.storage(root, config), load)

    def close(self) -> None:
        """End the threads; prepared loads are forgotten before."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def spent(self) -> Traffic:
        """Return the requests and bytes spent since the last call."""
        previous, self._reported = self._reported, self._traffic.so_far()
        return self._reported - previous

    def _open_storage(self, root: str, config: StorageConfig) -> Storage:
        return open_storage(root, config, self._traffic)


def _close(future: Future[ByteStream]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()
