"""A query whose driver is killed again and again ends with what one batch reads."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests import leaks
from tests.spark.spark_topics import LEDGER_IDS, ordered, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

DRIVER = Path(__file__).with_name("streaming_driver.py")
LONGEST_S = 4.0  # a dozen batches, and then some


class Source(Protocol):
    """What a driver streams.

    Attributes:
        root: Where it lies.
        options: Those that it is read with.
        written: How many rows it has.

    """

    root: Path
    options: dict[str, str]
    written: int

    def __init__(self, directory: Path) -> None: ...

    def grow(self, share: float) -> None:
        """Write to it, while that share of the drivers has been killed."""

    def rows(self, frame: DataFrame) -> list[Row]:
        """Return its rows in one order."""


class LateLedger:
    """A topic whose last ledger is offloaded when half of the drivers are dead."""

    def __init__(self, directory: Path) -> None:
        self._topic = write(directory / "bucket")
        self.root, self.written = self._topic.directory, self._topic.rows
        self.options = {"topic": self._topic.name, "runBytes": "4k"}
        self._elsewhere = directory / "held back"
        self._elsewhere.mkdir()
        for path in self.root.glob(f"*-ledger-{LEDGER_IDS[-1]}*"):
            path.rename(self._elsewhere / path.name)

    def grow(self, share: float) -> None:
        if share >= 0.5:
            for path in sorted(self._elsewhere.iterdir()):  # its index comes last
                path.rename(self.root / path.name)

    def rows(self, frame: DataFrame) -> list[Row]:
        return ordered(frame)


class GrowingTable:
    """A table that others append to: commits of three files of eight rows."""

    def __init__(self, directory: Path) -> None:
        self.root, self.written = directory / "lake", 0
        self.options = {"connector": "delta", "topic": "t", "runBytes": "4k"}
        self._append(12)

    def grow(self, share: float) -> None:
        self._append(2)

    def rows(self, frame: DataFrame) -> list[Row]:
        return sorted(frame.collect())

    def _append(self, commits: int) -> None:
        for _ in range(commits):
            ids = range(self.written, self.written + 24)
            rows = pa.table({"id": ids, "shop": [id_ % 3 for id_ in ids]})
            write_deltalake(self.root / "t", rows, mode="append", partition_by=["shop"])
            self.written += len(ids)


@pytest.fixture(scope="module", autouse=True)
def _threads_of_delta_rs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start what delta-rs keeps running, before tests look for what they leave."""
    GrowingTable(tmp_path_factory.mktemp("first"))


@pytest.mark.parametrize("kind", [LateLedger, GrowingTable])
@pytest.mark.parametrize(("kills", "rows"), [(2, 70), (20, 16)], ids=str)
def test_no_row_is_lost_and_none_comes_twice(
    spark: SparkSession, tmp_path: Path, kind: type[Source], kills: int, rows: int
) -> None:
    source = kind(tmp_path)
    seed = random.randrange(1 << 32)
    print("seed", seed)  # shown if it fails
    rng = random.Random(seed)
    killed = 0
    while killed < kills:
        kill_after_s = rng.uniform(0, LONGEST_S)
        grow_after_s = rng.uniform(0, kill_after_s)
        with _driver(source, tmp_path, rows) as driver:
            _ends(driver, grow_after_s)
            source.grow(killed / kills)
            if not _ends(driver, kill_after_s - grow_after_s):
                _kill(driver, tmp_path)
                killed += 1
    source.grow(1.0)
    with _driver(source, tmp_path, rows) as driver:
        assert _ends(driver)
    found = source.rows(spark.read.parquet(str(tmp_path / "rows")))
    batch = spark.read.format("sparkcache").options(**source.options)
    assert found == source.rows(batch.load(str(source.root)))
    assert len(found) == source.written


@contextmanager
def _driver(
    source: Source, directory: Path, rows: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that has begun to read, with this number of rows in a batch."""
    options = json.dumps({**source.options, "maxRowsPerTrigger": rows})
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, str(DRIVER), str(source.root), str(directory), options],
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        ) as driver,
    ):
        assert driver.stdout is not None
        try:
            assert driver.stdout.readline() == b"begun\n"
            yield driver
        except AssertionError as error:
            error.add_note((directory / "log").read_text())
            raise


def _ends(driver: subprocess.Popen[bytes], within_s: float | None = None) -> bool:
    """Wait for the end of a driver; return whether it came."""
    try:
        status = driver.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    assert status == 0
    return True


def _kill(driver: subprocess.Popen[bytes], directory: Path) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    assert leaks.gone(str(directory / "local")), "it outlived its driver"
