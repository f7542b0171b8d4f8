"""What reading a data file takes of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
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
