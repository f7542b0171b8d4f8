"""What reading a data file takes of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcache.testing.reading import decoded_runs
from tests.unit.delta.lake import CONNECTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.delta.lake import Lake

FILE_BYTES = 128 << 20
# The limit leaves half of what an image of the whole file would take.
READ_UNDER_A_LIMIT = f"""
import resource, sys
from pathlib import Path
from sparkcache.config import StorageConfig
from sparkcache.connector import Selection
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing.reading import decoded_runs
from sparkcache_delta import DeltaConnector

connector = DeltaConnector()
storage = open_storage(sys.argv[1], StorageConfig(), Traffic())

def sums(table):
    options = connector.pin(storage, Selection((table,)), {{"columns": "id"}})
    yield
    runs = decoded_runs(connector, storage, table, options)
    found = [run for _, run in runs]
    assert not any(run.losses for run in found), found
    yield sum(sum(batch["id"].to_pylist()) for run in found for batch in run.batches)

small, large = sums("small"), sums("large")
next(small), next(large), next(small)
lines = Path("/proc/self/status").read_text().splitlines()
(size,) = (int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize"))
limit = size + {FILE_BYTES // 2}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(next(large))
"""


def test_few_columns_of_a_file_that_is_larger_than_the_memory(lake: Lake) -> None:
    for name, size_bytes in (("small", 1 << 10), ("large", FILE_BYTES)):
        folder = lake.directory / name
        folder.mkdir()
        blobs = [bytes(size_bytes // 128)] * 128
        rows = pa.table({"id": range(128), "blob": blobs, "last": range(128)})
        pq.write_table(rows, folder / "a", compression="none", use_dictionary=False)
    (path,) = (lake.directory / "large").iterdir()
    assert path.stat().st_size > FILE_BYTES
    done = subprocess.run(
        [sys.executable, "-c", READ_UNDER_A_LIMIT, lake.directory.as_uri()],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(range(128))


ROWS = 20_000
RUN_BYTES = 64 << 10
TEXT = "x" * 7000


def same(values: list[object]) -> pa.Array:
    """Return the same few values again and again, which are stored once."""
    numbers = pa.array(np.arange(ROWS, dtype=np.int32) % len(values))
    return pa.array(values).take(numbers)


def write(lake: Lake, column: pa.Array, **options: object) -> None:
    folder = lake.directory / "t"
    folder.mkdir()
    pq.write_table(pa.table({"x": column}), folder / "a", **options)


def sizes_of_runs(lake: Lake) -> list[int]:
    """Return the decoded bytes of each run of a table."""
    runs = decoded_runs(
        CONNECTOR, lake.storage(), "t", lake.pin("t"), run_bytes=RUN_BYTES
    )
    return [sum(batch.nbytes for batch in run.batches) for _, run in runs]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: same([TEXT]), id="a long text"),
        pytest.param(lambda: same(["a" * 3000, "b" * 3000]), id="texts with bounds"),
        pytest.param(lambda: same([TEXT.encode(), b""]), id="bytes"),
        pytest.param(lambda: same([{"a": {"b": TEXT}}]), id="a text in structs"),
        pytest.param(lambda: same([["a" * 3000] * 2, []]), id="texts in lists"),
        pytest.param(lambda: same([[7] * 900]), id="numbers in lists"),
        pytest.param(lambda: pa.repeat(7, ROWS * 20), id="numbers"),
    ],
)
def test_runs_are_bounded_by_what_is_decoded(
    lake: Lake, make: Callable[[], pa.Array]
) -> None:
    write(lake, make())
    sizes = sizes_of_runs(lake)
    assert max(sizes) < 4.5 * RUN_BYTES
    assert len(sizes) < 2 + sum(sizes) / (2 * RUN_BYTES)


@pytest.mark.parametrize("statistics", [True, False])
def test_runs_without_the_sizes_that_newer_writers_store(
    lake: Lake, statistics: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bounds tell how long texts are; else, they are taken to be 8 KiB."""
    monkeypatch.setattr("sparkcache_delta.decoded_size._stored_sizes", lambda _: {})
    write(lake, same(["a" * 3000, "b" * 3000]), write_statistics=statistics)
    assert max(sizes_of_runs(lake)) < 4.5 * RUN_BYTES


def test_runs_of_a_table_that_does_not_grow_are_cut_by_what_is_stored(
    lake: Lake,
) -> None:
    write(lake, pa.array(np.random.default_rng(7).random(ROWS)))
    (found,) = lake.snapshot("t").ledgers
    (extent,) = found.extents
    expected = -(-extent.size_bytes // RUN_BYTES)
    assert len(sizes_of_runs(lake)) == expected
