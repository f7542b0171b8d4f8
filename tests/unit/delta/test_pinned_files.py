"""Data files in an option: they come back with the types that they had."""

from __future__ import annotations

import pickle
import zlib
from base64 import b64encode, b85encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.filters import Bounds
from sparkcache_delta.pinned_files import parse, serialize
from sparkcache_delta.table import DataFile

if TYPE_CHECKING:
    from pathlib import Path

VALUES: dict[str, tuple[Any, Any]] = {
    "long": (-(2**63), 2**63 - 1),
    "double": (-0.5, float("inf")),
    "text": ("", "ü\n"),
    "bytes": (b"", b"\0\xff"),
    "bool": (False, True),
    "day": (date(1, 1, 1), date(9999, 12, 31)),
    "instant": (
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
    ),
    "local": (datetime(1900, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)),
    "price": (Decimal("-1.25"), Decimal("12345678901234567890.5")),
}
FILES = [
    DataFile("s3://b/t/a.parquet", 1_700_000_000_000, 10, 3, {"p": "x", "q": None}),
    DataFile(
        "s3://b/t/p=%20/b.parquet",
        0,
        bounds={name: Bounds(*values, 2) for name, values in VALUES.items()},
    ),
    DataFile(
        "s3://b/t/c.parquet",
        1,
        bounds={"long": Bounds(nulls=7), "text": Bounds("a"), "none": Bounds()},
    ),
]


def types(file: DataFile) -> dict[str, list[type]]:
    return {name: list(map(type, known)) for name, known in file.bounds.items()}


@pytest.mark.parametrize("files", [[], FILES[:1], FILES[1:2], FILES], ids=len)
def test_files_come_back(files: list[DataFile]) -> None:
    found = parse(serialize(files))
    assert found == files
    assert list(map(types, found)) == list(map(types, files))


@pytest.mark.parametrize("encode", [b64encode, b85encode])
def test_a_text_runs_no_code(encode: Any, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return (tmp_path / "harm").touch, ()

    text = encode(zlib.compress(pickle.dumps([Harmful()]))).decode()
    with pytest.raises((ValueError, OSError, zlib.error)):
        parse(text)
    assert not (tmp_path / "harm").exists()
