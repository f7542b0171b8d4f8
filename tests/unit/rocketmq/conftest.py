"""A queue in a storage."""

from __future__ import annotations

import pytest

from .stores import SEGMENT_BYTES, Store, messages


@pytest.fixture
def store() -> Store:
    """Offsets 100 to 145, in 5 segments of the commit log."""
    found = Store()
    found.writer(first_offset=100, max_segment_bytes=SEGMENT_BYTES).append(messages(46))
    return found
