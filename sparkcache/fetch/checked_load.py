"""A load that requests a run with losses again before its losses are believed.

What is corrupt in storage is the same in each response; what was damaged on the way is
not. So losses are believed once the same bytes have arrived twice, or after three
responses. Then the rest of the load is believed, too: a topic with many losses costs
one more request and one more run for each load.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkcache.fetch.load import fetch
from sparkcache.fetch.run_statistics import run_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pyarrow as pa

    from sparkcache.connector import ByteStream, Connector, DecodedRun, RawRun
    from sparkcache.fetch.load import Load
    from sparkcache.filters import RunStatistics

_MOST_RESPONSES = 3

_log = logging.getLogger(__name__)


class CheckedLoad:
    """The runs of a load, in order, as its bytes arrive.

    Args:
        connector: The connector of the runs.
        load: The load.
        request: Requests the bytes of a load; called at once.
        batch_bytes: Approximate size of a decoded record batch.

    Raises:
        SourceError: From every method except `close`.

    """

    def __init__(
        self,
        connector: Connector,
        load: Load,
        request: Callable[[Load], ByteStream],
        batch_bytes: int,
    ) -> None:
        self._connector = connector
        self._load = load
        self._request = request
        self._batch_bytes = batch_bytes
        self._is_believed = False
        self._raws = self._begin(load)

    def __repr__(self) -> str:
        return f"CheckedLoad({self._load})"

    def __iter__(self) -> CheckedLoad:
        return self

    def __next__(self) -> RawRun:
        """Return the next run as it is stored."""
        return next(self._raws)

    def decode(self, raw: RawRun) -> DecodedRun:
        """Decode the run that `next` has returned last."""
        for _ in range(1, _MOST_RESPONSES):
            decoded = self._decoded(raw)
            if self._is_believed or not decoded.losses:
                return decoded
            _log.info("requesting a run again: %s", decoded.losses[0])
            before = replace(raw, data=bytes(raw.data))
            raw = self._again(raw)
            self._is_believed = before == replace(raw, data=bytes(raw.data))
        return self._decoded(raw)

    def schema(self, decoded: DecodedRun) -> pa.Schema:
        """Return the schema of a decoded run, which may have no batches."""
        if decoded.batches:  # they may have more columns, for the resolver
            return decoded.batches[0].schema
        return self._connector.schema(self._load.ledger.decoding)

    def statistics(self, decoded: DecodedRun) -> RunStatistics | None:
        """Return the statistics of a decoded run, if its rows are those of scans."""
        return run_statistics(self._connector, self._load.ledger.decoding, decoded)

    def close(self) -> None:
        """Close the response; the remaining bytes are not read."""
        self._raws.close()

    def _begin(self, load: Load) -> Generator[RawRun]:
        return fetch(self._connector, load, self._request(load))

    def _decoded(self, raw: RawRun) -> DecodedRun:
        return self._connector.decode(self._load.ledger, raw, self._batch_bytes)

    def _again(self, raw: RawRun) -> RawRun:
        """Return a run from a new response, from which the runs after it come, too."""
        self.close()
        load = self._load
        if raw.offset >= 0:
            rest = load.runs[load.runs.index(raw.run) :]
            load = replace(load, runs=rest, offset=raw.offset)
        self._raws = self._begin(load)
        return next(again for again in self._raws if again.run == raw.run)
