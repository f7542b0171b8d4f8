"""The bar of a discovery that takes long, as a terminal gets it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
import threading
from typing import TYPE_CHECKING

import pytest

import sparkcache
from sparkcache import CacheConfig
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.driver.registration import register
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar import indexes
from sparkcache_pulsar.testing import Entry, Message, ledger_objects
from tests.spark.spark_topics import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BUCKET = "offload"
LEDGERS = 120
GRACE_S = 10.0
INDEXES = re.compile(rf"Reading indexes in s3://{BUCKET}: +\d+%.* (\d+)/{LEDGERS} ")


class Terminal:
    """A pseudo-terminal with 100 columns. What is written to `stderr` is kept."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.stderr = os.fdopen(slave, "w")
        self._written = b""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def close(self) -> None:
        self.stderr.close()
        self._reader.join()
        os.close(self._master)

    @property
    def line(self) -> str:
        """What is to be seen in its one line."""
        cells = [" "] * 100
        for drawn in self.drawings():
            cells[: len(drawn)] = drawn
        return "".join(cells).rstrip()

    def drawings(self) -> list[str]:
        text = self._written.decode(errors="ignore")
        assert "\n" not in text
        return text.split("\r")

    def wait_for(self, holds: Callable[[], bool]) -> bool:
        with self._more:
            return self._more.wait_for(holds, GRACE_S)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 4096)
            except OSError:
                return  # the other side was closed
            with self._more:
                self._written += data
                self._more.notify_all()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A topic of 120 small ledgers behind a server that answers after 0.1 s."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        entry = Entry((Message(b"value"),)).encode()
        for ledger in range(LEDGERS):
            for stored in ledger_objects(TOPIC, ledger, [entry]):
                server.put(BUCKET, stored.key, stored.data, stored.metadata)
        server.behave(latency_s=0.1)
        yield server


@pytest.fixture
def load(spark: SparkSession, server: S3Server) -> Iterator[Callable[[], DataFrame]]:
    """Installs the source again, and loads the topic."""
    config = CacheConfig(endpoint=server.endpoint, path_style=True, region="us-east-1")

    def installed() -> DataFrame:
        indexes._known.clear()  # this process reads them again
        sparkcache.install(spark, config)
        reader = spark.read.format("sparkcache").option("topic", TOPIC)
        return reader.load(f"s3://{BUCKET}")

    yield installed
    register(spark, SparkCacheSource)
    for key in CacheConfig().to_conf():
        spark.conf.unset(key)


def rises(terminal: Terminal) -> list[list[int]]:
    """The counts of indexes, of one bar after another."""
    bars: list[list[int]] = []
    for match in filter(None, map(INDEXES.search, terminal.drawings())):
        count = int(match[1])
        if not bars or count < bars[-1][-1]:
            bars.append([])
        bars[-1].append(count)
    return bars


def test_a_terminal_shows_how_far_planners_have_come_and_is_clean_again(
    load: Callable[[], DataFrame], terminal: Terminal
) -> None:
    with contextlib.redirect_stderr(terminal.stderr):
        rows = load()
        with sparkcache.plan(rows):
            assert terminal.wait_for(lambda: terminal.line == "")
        (of_plan,) = rises(terminal)
        assert rows.rdd.getNumPartitions() > 0  # found by a process of Spark's
        assert terminal.wait_for(
            lambda: len(rises(terminal)) == 2 and terminal.line == ""
        )
    _, of_query = rises(terminal)
    for counts in (of_plan, of_query):
        assert len(set(counts)) >= 3
        assert 0 < counts[0] < counts[-1] <= LEDGERS


def test_without_a_terminal_nothing_is_printed(
    load: Callable[[], DataFrame], capfd: pytest.CaptureFixture[str]
) -> None:
    with sparkcache.plan(load()):
        pass
    assert capfd.readouterr() == ("", "")
