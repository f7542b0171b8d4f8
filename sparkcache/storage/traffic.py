"""What a storage was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Counts reads of objects; listings apart.

    Attributes:
        gets: Requests for the content of an object.
        received_bytes: Bytes of content that arrived.
        retries: Requests that were made again.

    """

    gets: int = 0
    received_bytes: int = 0
    retries: int = 0
