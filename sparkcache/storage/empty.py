"""A range without bytes, which needs no request to the storage."""

from __future__ import annotations


class EmptyRange:
    """Byte stream without bytes."""

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"EmptyRange(at byte {self.position})"

    def read(self, size_bytes: int) -> bytes:  # noqa: ARG002
        """Return no bytes."""
        return b""

    def close(self) -> None:
        """Do nothing: no resource is open."""
