"""Who reads, as a task says when it begins."""

from __future__ import annotations

from dataclasses import dataclass

from sparkcache.demand.plan import Consumer
from sparkcache.model import ReadToken


@dataclass(frozen=True, slots=True)
class ReaderIdentity:
    """One partition of a scan, and the scan that it belongs to.

    Attributes:
        token: As whom it reads.
        scan: The same for all partitions that were planned together.
        consumer: What the whole scan reads.
        end: Where in the topic the whole scan ends, in stored bytes.

    """

    token: ReadToken
    scan: str
    consumer: Consumer
    end: float
