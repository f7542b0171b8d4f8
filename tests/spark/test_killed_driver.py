"""A query whose driver is killed again and again ends with what one batch reads."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import leaks
import pytest
from conftest import LEDGER_IDS, Topic, ordered, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("streaming_driver.py")
LONGEST_S = 4.0  # a dozen batches, and then some


@pytest.mark.long
@pytest.mark.parametrize(("kills", "rows"), [(2, 70), (20, 16)], ids=str)
def test_no_row_is_lost_and_none_comes_twice(
    spark: SparkSession, tmp_path: Path, kills: int, rows: int
) -> None:
    topic = write(tmp_path / "bucket")
    seed = random.randrange(1 << 32)
    print("seed", seed)  # told where it fails
    rng = random.Random(seed)
    held_back = _held_back(topic, tmp_path)
    killed = 0
    while killed < kills:
        killed += _run(topic, tmp_path, rows, rng.uniform(0, LONGEST_S))
        if killed >= kills // 2:
            _offload(topic, held_back)
    assert not _run(topic, tmp_path, rows, None)
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert ordered(found) == ordered(topic.load(spark))


def _run(topic: Topic, directory: Path, rows: int, kill_after_s: float | None) -> bool:
    """Run the driver, to its end or until it is killed; tell whether it was."""
    command = [sys.executable, str(DRIVER), str(topic.directory), topic.name]
    driver = subprocess.Popen(
        [*command, str(directory), str(rows)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert driver.stdout is not None
    with driver, driver.stdout as said:
        try:
            assert said.readline() == b"begun\n"
            status = driver.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            assert leaks.gone(str(directory / "local")), "it outlived its driver"
            return True
    assert status == 0
    return False


def _held_back(topic: Topic, directory: Path) -> list[Path]:
    """Take the last ledger out of the bucket."""
    (directory / "held back").mkdir()
    found = list(topic.directory.glob(f"*-ledger-{LEDGER_IDS[-1]}*"))
    return [path.rename(directory / "held back" / path.name) for path in found]


def _offload(topic: Topic, held_back: list[Path]) -> None:
    while held_back:
        path = held_back.pop()
        path.rename(topic.directory / path.name)
