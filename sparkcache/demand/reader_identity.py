"""The identity that a task reports when it begins to read."""

from __future__ import annotations

from dataclasses import dataclass

from sparkcache.demand.plan import Consumer
from sparkcache.model import ReadToken


@dataclass(frozen=True, slots=True)
class ReaderIdentity:
    """One partition of a scan, and the scan to which it belongs.

    Attributes:
        token: The token of the partition.
        scan: The id of the scan, shared by all partitions that were planned together.
        consumer: The consumer that describes the whole scan.
        end: Offset in the topic where the whole scan ends, in stored bytes.

    """

    token: ReadToken
    scan: str
    consumer: Consumer
    end: float
