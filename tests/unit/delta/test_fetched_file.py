"""A file for Arrow of which only some ranges were fetched."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkcache_delta.fetched_file import FetchedFile

RANGES = {4: pa.py_buffer(b"abcdef"), 1000: pa.py_buffer(b"xyz")}


@pytest.mark.parametrize(
    ("offset", "size_bytes", "found"),
    [
        pytest.param(4, 6, b"abcdef", id="a range"),
        pytest.param(6, 2, b"cd", id="a part"),
        pytest.param(1001, 99, b"yz", id="up to the end of the file"),
        pytest.param(1003, 8, b"", id="at the end of the file"),
        pytest.param(
            8, 102, b"ef" + bytes(100), id="the padding that Arrow reads after a chunk"
        ),
    ],
)
def test_bytes_that_were_fetched(offset: int, size_bytes: int, found: bytes) -> None:
    file = pa.PythonFile(FetchedFile(1003, RANGES), "r")
    assert file.size() == 1003
    file.seek(offset)
    assert file.read(size_bytes) == found
    assert file.tell() == offset + len(found)


@pytest.mark.parametrize(("offset", "size_bytes"), [(0, 4), (3, 4), (8, 103), (10, 1)])
def test_bytes_that_were_not_fetched_are_an_error(offset: int, size_bytes: int) -> None:
    file = pa.PythonFile(FetchedFile(1003, RANGES), "r")
    file.seek(offset)
    with pytest.raises(OSError, match="not all in the ranges that were planned"):
        file.read(size_bytes)


@pytest.mark.parametrize("tail", [b"", b"PAR1", b"\0\0\0\0PARE", b"\x09\0\0\0PAR1"])
def test_a_file_without_a_footer_is_an_error(tail: bytes) -> None:
    file = FetchedFile(len(tail), {0: pa.py_buffer(tail)})
    with pytest.raises(pa.ArrowInvalid, match="expected the end of a Parquet file"):
        file.footer()
