"""Runs the consumers of a shop's topic, with or without the cache, and counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import shop
from bucket import URL, sent
from report import Reading, Way

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.progress import Progress

    from sparkcache.testing.s3_server import S3Server


class Consumers:
    """The consumers of a shop's topic in a bucket, run in one way or another."""

    def __init__(
        self, server: S3Server, spark: SparkSession, progress: Progress
    ) -> None:
        self._server = server
        self._spark = spark
        self._progress = progress

    def without(self, topic: str, label: str = "") -> Way:
        """Run the consumers one after another, without the cache."""
        frames = self._frames(self._load(topic, enabled="false"))
        began = time.perf_counter()
        readings, counting_s = self._run(frames, label)
        return Way(readings, time.perf_counter() - began - counting_s)

    def with_cache(self, topic: str, label: str = "", **options: str) -> Way:
        """Run the consumers one after another as a plan, with the cache."""
        frames = self._frames(self._load(topic, **options))
        began = time.perf_counter()
        with sparkcache.plan(*frames.values()):
            readings, counting_s = self._run(frames, label)
        return Way(readings, time.perf_counter() - began - counting_s)

    def _load(self, topic: str, **options: str) -> DataFrame:
        return (
            self._spark.read.format("sparkcache")
            .option("topic", topic)
            .option("partitionBytes", "8m")
            .options(**options)
            .load(URL)
        )

    def _frames(self, orders: DataFrame) -> dict[str, DataFrame]:
        return {name: job(orders) for name, job in shop.CONSUMERS.items()}

    def _run(
        self, frames: dict[str, DataFrame], label: str
    ) -> tuple[list[Reading], float]:
        """Run the consumers; return also the time spent on requesting counts."""
        task = self._progress.add_task(label, total=len(frames), visible=bool(label))
        readings, counting_s = [], 0.0
        for name, frame in frames.items():
            started = time.perf_counter()
            before, metrics = sent(self._server), self.metrics()
            began = time.perf_counter()
            result = [tuple(row) for row in frame.collect()]
            ended = time.perf_counter()
            after, used = sent(self._server), self.metrics() - metrics
            counting_s += began - started + time.perf_counter() - ended
            readings.append(
                Reading(
                    name,
                    rows=sum(row[frame.columns.index("orders")] for row in result),
                    runs=used.requests,
                    hits=used.hits + used.prefetch_hits,
                    gets=after.gets - before.gets,
                    bytes=after.sent_bytes - before.sent_bytes,
                    seconds=ended - began,
                    result=result,
                )
            )
            self._progress.advance(task)
        return readings, counting_s

    def metrics(self) -> Metrics:
        """Return what the nodes of all executors have counted."""
        return sum(node_metrics(self._spark).values(), Metrics())
