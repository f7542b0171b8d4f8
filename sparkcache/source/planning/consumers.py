"""The consumers that the scans of DataFrames are.

What takes time is looked up once for each scan, in threads: Spark optimizes the next
query meanwhile, and storage answers for several scans side by side.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.source.driver.progress_bar import drawing_progress
from sparkcache.source.options import ScanOptions
from sparkcache.source.planning.query_plans import scans_in
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.demand import Consumer
    from sparkcache.source.planning.query_plans import FoundScan

_MAX_LOOKUPS = 8  # at a time


class PlannedScans(NamedTuple):
    """What a DataFrame reads.

    Attributes:
        scans: The scans in its plan, each as often as it reads.
        consumers: A consumer for each topic of each scan.

    """

    scans: Sequence[FoundScan]
    consumers: Sequence[Consumer]


def scans_of(dataframes: Iterable[DataFrame]) -> list[PlannedScans]:
    """Return what each DataFrame reads; the same DataFrame may occur several times."""
    frames = list(dataframes)
    with ThreadPoolExecutor(_MAX_LOOKUPS, "sparkcache-plan") as threads:
        lookups = _Lookups(threads)
        scans = {}
        for frame in frames:
            if id(frame) not in scans:
                scans[id(frame)] = scans_in(frame)
                lookups.begin(scans[id(frame)], frame.sparkSession)
        return [
            PlannedScans(
                scans[id(frame)],
                lookups.consumers(scans[id(frame)], frame.sparkSession),
            )
            for frame in frames
        ]


class _Lookups:
    """Lookups of consumers, one for each scan of a session."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._parsed: dict[object, ScanOptions] = {}
        self._names: dict[object, Future[Sequence[str]]] = {}
        self._confs: dict[SparkSession, Mapping[str, str]] = {}

    def __repr__(self) -> str:
        return f"_Lookups({len(self._names)} scans listed)"

    def begin(self, scans: Iterable[FoundScan], spark: SparkSession) -> None:
        """Begin to look up what only storage tells, unless that has begun."""
        for options in dict.fromkeys(found.options for found in scans):
            scan = self._scan(options)
            if (spark, options) in self._names or _names(scan) is not None:
                continue
            config = CacheConfig.resolve(options=scan.raw, conf=self._conf(spark))
            self._names[spark, options] = self._threads.submit(_listed, scan, config)

    def consumers(
        self, scans: Iterable[FoundScan], spark: SparkSession
    ) -> list[Consumer]:
        """Return a consumer for each topic of scans that have begun."""
        consumers: list[Consumer] = []
        for options, _ in scans:
            scan = self._scan(options)
            names = _names(scan)
            if names is None:
                names = self._names[spark, options].result()
            consumers += [scan.consumer(name) for name in names]
        return consumers

    def _scan(self, options: tuple[tuple[str, str], ...]) -> ScanOptions:
        if options not in self._parsed:
            self._parsed[options] = ScanOptions.parse(dict(options))
        return self._parsed[options]

    def _conf(self, spark: SparkSession) -> Mapping[str, str]:
        if spark not in self._confs:
            self._confs[spark] = dict(spark.conf.getAll)
        return self._confs[spark]


def _names(scan: ScanOptions) -> Sequence[str] | None:
    """Return the topics of a scan; None if only storage tells which these are.

    So it is with a pattern, or a name of several topics. A stream that starts at
    `latest` has none: it reads nothing of what is stored.
    """
    if scan.starts_latest:
        return ()
    names = scan.selection.names
    connector = connectors.find(scan.connector)
    return names if names and all(map(connector.is_single_topic, names)) else None


def _listed(scan: ScanOptions, config: CacheConfig) -> Sequence[str]:
    storage = open_storage(scan.root, config.storage, Traffic())
    with drawing_progress():
        catalog = connectors.find(scan.connector).catalog(storage, scan.raw)
        return catalog.select(scan.selection)
