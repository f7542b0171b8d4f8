"""A range without bytes, for which no storage is asked."""

from __future__ import annotations


class EmptyRange:
    """The bytes of it: none."""

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"EmptyRange(at byte {self.position})"

    def read(self, size_bytes: int) -> bytes:  # noqa: ARG002
        """Return no bytes."""
        return b""

    def close(self) -> None:
        """Give up nothing."""
