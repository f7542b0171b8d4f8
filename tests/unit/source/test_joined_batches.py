"""Small batches are joined, and the rows stay what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkcache.source.batch.joined_batches import joined

if TYPE_CHECKING:
    from collections.abc import Iterator

KIB = 1024


def batch(number: int, size_bytes: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": [number], "b": [bytes(size_bytes)]})


def batches(sizes: list[int]) -> Iterator[pa.RecordBatch]:
    return (batch(number, size_bytes) for number, size_bytes in enumerate(sizes))


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([KIB], [1], id="one small batch"),
        pytest.param([KIB] * 16, [1, 1, 2, 4, 8], id="twice as many each time"),
        pytest.param([KIB] * 5, [1, 1, 2, 1], id="the last ones are not forgotten"),
        pytest.param([500 * KIB] * 3, [1, 1, 1], id="large batches stay as they are"),
        pytest.param(
            [KIB] * 5 + [500 * KIB] + [KIB] * 2,
            [1, 1, 2, 1, 1, 2],
            id="a large batch ends what is joined",
        ),
    ],
)
def test_small_batches_are_joined(sizes: list[int], rows: list[int]) -> None:
    found = list(joined(batches(sizes)))
    assert [len(each) for each in found] == rows
    numbers = [number for each in found for number in each.column("a").to_pylist()]
    assert numbers == list(range(len(sizes)))


def test_joined_batches_are_of_limited_size() -> None:
    found = list(joined(batches([100 * KIB] * 100)))
    assert max(each.nbytes for each in found) <= 1200 * KIB
    assert len(found) < 20


def test_a_reader_that_leaves_early_has_not_waited_for_many() -> None:
    taken = []

    def source() -> Iterator[pa.RecordBatch]:
        for each in batches([KIB] * 100):
            taken.append(each)
            yield each

    assert len(next(joined(source()))) == 1
    assert len(taken) == 1


def test_batches_of_an_array_of_several_chunks_stay_whole() -> None:
    whole = pa.RecordBatch.from_pydict({"a": list(range(10))})
    parts = (whole.slice(first, 1) for first in range(10))
    assert pa.Table.from_batches(joined(parts)).to_pydict() == whole.to_pydict()
