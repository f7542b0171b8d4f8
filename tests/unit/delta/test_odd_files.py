"""Files that other writers make: read as Spark reads them, or errors that say why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcache.errors import SourceError
from sparkcache_delta import splitting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lake import Lake

ROWS = 200


class SmallSteps(pq.ParquetFile):  # type: ignore[misc]
    """A file with so many bytes in each row that only few rows can be read at once."""

    MOST = 5
    READ = 1  # how many larger steps succeed before one fails
    asked: list[int]

    def iter_batches(self, rows: int, *args: Any, **kwargs: Any) -> Iterator[Any]:
        type(self).asked.append(rows)
        for number, batch in enumerate(super().iter_batches(rows, *args, **kwargs)):
            if rows > self.MOST and number >= self.READ:
                raise pa.ArrowNotImplementedError("chunked array outputs")
            yield batch


@pytest.fixture
def path(lake: Lake) -> Path:
    folder = lake.directory / "t"
    folder.mkdir()
    return folder / "a.parquet"


def nested(kind: str) -> pa.Array:
    texts = pa.array([f"text {at % 7}" for at in range(ROWS)]).dictionary_encode()
    if kind == "struct":
        return pa.StructArray.from_arrays([texts], names=["x"])
    return pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), texts)


@pytest.mark.parametrize("kind", ["list", "struct"])
def test_nested_columns_whose_dictionaries_differ(
    lake: Lake, path: Path, kind: str
) -> None:
    rows = pa.table({"id": range(ROWS), "x": nested(kind)})
    pq.write_table(rows, path, row_group_size=30)
    found, losses = lake.read("t", run_bytes=100)
    assert not losses
    assert found == rows.to_pylist()


def test_rows_that_can_only_be_read_few_at_a_time(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting.pq, "ParquetFile", SmallSteps)
    monkeypatch.setattr(splitting, "_MOST_ROWS", 64)
    monkeypatch.setattr(SmallSteps, "asked", [], raising=False)
    rows = pa.table({"id": range(ROWS)})
    pq.write_table(rows, path, row_group_size=90)
    assert lake.rows("t") == rows.to_pylist()
    assert SmallSteps.asked == [64, 64, 4, 64, 4, 64]


def test_rows_that_cannot_be_read_at_all_are_a_loss(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting.pq, "ParquetFile", SmallSteps)
    monkeypatch.setattr(SmallSteps, "asked", [], raising=False)
    monkeypatch.setattr(SmallSteps, "MOST", 0)
    monkeypatch.setattr(SmallSteps, "READ", 0)
    pq.write_table(pa.table({"id": range(ROWS)}), path, row_group_size=90)
    found, (loss,) = lake.read("t")
    assert not found
    assert (loss.first, loss.last) == (0, ROWS - 1)
    assert "chunked array outputs" in loss.found


def test_maps_whose_keys_may_be_null(lake: Lake, path: Path) -> None:
    rows = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(rows, path, compression="none", store_schema=False)
    data = path.read_bytes()
    required, optional = b"\x25\x00\x18\x03key", b"\x25\x02\x18\x03key"
    assert data.count(required) == 1
    path.write_bytes(data.replace(required, optional))
    with pytest.raises(SourceError, match=r"a\.parquet.*Map keys must be annotated"):
        lake.rows("t")
