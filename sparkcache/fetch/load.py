"""One load: one ranged GET, cut into runs while its bytes arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.fetch.joined import JoinedRanges
from sparkcache.model import Extent, Ledger, Run

if TYPE_CHECKING:
    from collections.abc import Generator

    from sparkcache.connector import ByteStream, Connector, RawRun, Storage


MOST_TOGETHER = 64
"""How many small loads are done together at most."""

_SMALL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Load:
    """Consecutive runs of one extent, read with one request.

    Attributes:
        ledger: The ledger of the runs.
        extent: The extent of the runs.
        runs: The runs to read.
        offset: Where the first run begins in the object.
        end: Where to stop reading: the offset of the run after the last one if it is
            known, otherwise the end of the extent.

    """

    ledger: Ledger
    extent: Extent
    runs: tuple[Run, ...]
    offset: int
    end: int

    @property
    def is_small(self) -> bool:
        """Whether it is small, of one run, and can be done together with others."""
        return is_small(self.extent, len(self.runs))

    def __str__(self) -> str:
        ledger, first, last = self.ledger, self.runs[0].first, self.runs[-1].last
        return f"{ledger.topic} {ledger.id}:{first}-{last} of {ledger.object.uri}"


def is_small(extent: Extent, runs: int) -> bool:
    """Return whether a load of so many runs of an extent can be done with others."""
    return runs == 1 and extent.size_bytes <= _SMALL_BYTES and not extent.ranges


def begin(storage: Storage, load: Load) -> ByteStream:
    """Request the bytes of a load from the storage. Raises SourceError."""
    if load.extent.ranges:
        return JoinedRanges(storage, load.ledger.object, load.extent.ranges)
    return storage.open(load.ledger.object, load.offset, load.end - load.offset)


def fetch(connector: Connector, load: Load, stream: ByteStream) -> Generator[RawRun]:
    """Yield the runs of a load as its bytes arrive: all of them, in order.

    The stream is closed at the end, or when the generator is closed. Raises
    SourceError.
    """
    try:
        raws = connector.split(load.ledger, load.extent, load.runs, stream)
        for run in load.runs:
            raw = next(raws, None)
            if raw is None or raw.run != run:
                raise SourceError(
                    load.ledger.object.uri,
                    offset=stream.position,
                    expected=f"entries {run.first} to {run.last}",
                    found=f"{raw.run}" if raw else "the end of the extent",
                )
            yield raw
    finally:
        stream.close()
