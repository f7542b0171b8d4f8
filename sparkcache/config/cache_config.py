"""The settings of a node, of a scan and of a storage, and all of them together."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sparkcache.config.setting import (
    Attempts,
    BlockBytes,
    Bytes,
    Count,
    EngineName,
    Flag,
    Loaders,
    PolicyName,
    Seconds,
    Share,
    Text,
    Timeout,
    setting,
    settings_of,
    suggest,
)
from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONF_PREFIX = "spark.sparkcache."
# No settings: sparkcache.plan() sets the first, sparkcache.install() the second.
PLANS_CONF = CONF_PREFIX + "plans"
DECIDES_CONF = CONF_PREFIX + "decides"
COLUMNS_CONF = CONF_PREFIX + "plannedColumns"
_NOT_SETTINGS = frozenset({PLANS_CONF, DECIDES_CONF, COLUMNS_CONF})
CONF_FILE_VARIABLE = "SPARKCACHE_CONF"

_SEPARATOR = re.compile(r"\s*=\s*|\s+")


_Part = TypeVar("_Part", bound="_Checked")


class _Checked:
    """Base class of the settings: checks each value against its annotation."""

    def __post_init__(self) -> None:
        for spec in settings_of(type(self)):
            spec.check(getattr(self, spec.name))


@dataclass(frozen=True, kw_only=True)
class NodeConfig(_Checked):
    """Settings of a whole node: its memory, eviction, read-ahead and loaders.

    Sizes are in bytes, times in seconds. Raises ConfigError if a value is of the wrong
    type or out of range.
    """

    max_bytes: Bytes = setting(
        1 << 30,
        "Hard limit of an executor's cache: all runs that are held, being loaded or "
        "mapped by readers. 0: no run is held.",
    )
    engine: EngineName = setting(
        "runs",
        "How runs are held. runs: each run separately; policy decides which one is "
        "evicted next. ring: in segments that are reused in turn, always "
        "overwriting the oldest segment as a whole (PIP-174); policy, trigger, "
        "watermark, maxRequeues and all ttl settings have no effect then. Changing "
        "the engine empties the cache.",
    )
    segment_bytes: Bytes = setting(
        0,
        "Size of a segment of the ring. A run larger than a segment is served "
        "without being held. The number of segments is always limited to 2 to 512. "
        "0: 1/32 of maxBytes, but at least 16m.",
    )
    copy_entries: Flag = setting(
        True,
        "Copy the runs of a ring into its segments, each of which a reader maps "
        "once. A process that a task forks must not use runs inherited from the "
        "task after the task has released them. Off: each run has its own memory, "
        "and a segment is a list of runs.",
    )
    policy: PolicyName = setting(
        "next-read",
        "Which run is evicted to make room. next-read: the run whose next planned "
        "read is furthest in the future. expected-reads: the oldest run, except "
        "that a run which planned readers have still to read is requeued (PIP-430). "
        "lru: the least recently accessed run.",
    )
    trigger: Share = setting(
        0.98,
        "Runs are evicted once more than this share of maxBytes is held. Policy "
        "next-read ignores trigger and watermark and evicts only as much as "
        "necessary.",
    )
    watermark: Share = setting(
        0.90,
        "Eviction stops when no more than this share of maxBytes is held.",
    )
    ttl_create_s: Seconds = setting(
        180,
        "Time to live of a run that has not been read yet. 0: see ttl.",
    )
    ttl_after_read_s: Seconds = setting(
        10,
        "Time to live of a run after its last read. 0: see ttl.",
    )
    ttl_s: Seconds = setting(
        15,
        "Replaces ttlCreate or ttlAfterRead if one of them is 0. If both are 0, a "
        "run lives this long after it was last accessed.",
    )
    ttl_expected_s: Seconds = setting(
        3600,
        "How long a run waits for a planned reader before it is requeued.",
    )
    max_life_s: Seconds = setting(
        0,
        "Maximum age of a run since it was loaded, even if it is still being read "
        "or has planned reads. Without it, a run that is read every 9 s never "
        "reaches a ttlAfterRead of 10 s. A run that a task has mapped stays valid "
        "for that task. 0: no limit.",
    )
    max_requeues: Count = setting(
        5,
        "How often a run is requeued while planned readers have not read it.",
    )
    continue_caching_s: Seconds = setting(
        30,
        "How long after the end of a topic's last stream its runs are still "
        "admitted as if the stream read on, in case it is restarted (PIP-430).",
    )
    extend_recently_accessed: Flag = setting(
        False,
        "Requeue a run accessed since eviction last considered it.",
    )
    drop_after_last_read: Flag = setting(
        True,
        "Evict a run as soon as its last planned reader has read it.",
    )
    get_cost_bytes: Bytes = setting(
        2 << 20,
        "What a GET costs, in bytes that could be read instead. The policy next-read "
        "then evicts runs so that fewer GETs are needed, at the cost of bytes. 0: GETs "
        "cost nothing.",
    )
    read_ahead_bytes: Bytes = setting(
        32 << 20,
        "Maximum of decoded bytes loaded ahead of each reader. A planned reader "
        "gets it at once, any other reader only as much as it has read itself. 0: "
        "no read-ahead.",
    )
    loaders: Loaders = setting(
        0,
        "Maximum of loader processes of a node. They are started as they are needed, "
        "and end when they are idle. 0: one for each core of the executor that its "
        "container may use, but at most 8, and not more than loaderMemoryBytes allows.",
    )
    loader_memory_bytes: Bytes = setting(
        0,
        "Memory that the loaders of a node may keep between loads, beside maxBytes. A "
        "loader that keeps more than its share is replaced after its load. With "
        "loaders=0, there are only as many that each can have 192m. 0: 256m for each "
        "loader.",
    )
    trace: Text = setting(
        None,
        "Directory in which each node records the requests it gets, as input for "
        "python -m sparkcache.simulate. Empty: nothing is recorded.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.watermark > self.trigger:
            raise ConfigError(
                f"watermark={self.watermark}: must not be above trigger={self.trigger}"
            )


@dataclass(frozen=True, kw_only=True)
class ScanConfig(_Checked):
    """Settings of a scan; as for `NodeConfig`. A scan can override them as options."""

    enabled: Flag = setting(
        True,
        "Use the cache. Off: each task reads the storage by itself.",
    )
    run_bytes: BlockBytes = setting(
        2 << 20,
        "Approximate size of a run, the unit that is cached, as stored. A decoded "
        "run is larger by the compression ratio.",
    )
    batch_bytes: BlockBytes = setting(
        1 << 20,
        "Approximate size of a decoded record batch.",
    )
    partition_bytes: BlockBytes = setting(
        64 << 20,
        "Maximum size of a Spark partition, approximately, as stored.",
    )
    homes: Flag = setting(
        True,
        "Give each part of a topic a home among the executors, which keeps it, and "
        "have Spark prefer that executor for the tasks that read it. Needs the reader "
        "in the JVM. Off: each executor keeps what its own tasks read.",
    )
    startup_timeout_s: Timeout = setting(
        20,
        "How long a task waits for a node to start.",
    )


@dataclass(frozen=True, kw_only=True)
class StorageConfig(_Checked):
    """How a storage is accessed; as for `NodeConfig`. A scan can override it."""

    endpoint: Text = setting(
        None,
        "URL of the S3 server. Empty: as configured for boto3.",
    )
    region: Text = setting(
        None,
        "Region of the S3 server. Empty: as configured for boto3.",
    )
    path_style: Flag = setting(
        False,
        "Address buckets as endpoint/bucket instead of bucket.endpoint.",
    )
    storage_attempts: Attempts = setting(
        5,
        "How often a request to the storage is attempted, with back-off in between.",
    )
    storage_timeout_s: Timeout = setting(
        30,
        "How long a request to the storage may go without receiving data.",
    )
    request_timeout_s: Timeout = setting(
        120,
        "How long a loader may be silent, and a node, though that never longer than "
        "30 s. The tasks that wait then read without the cache. Also how long the next "
        "64 KiB of an object in S3 may take; after that the rest is requested again, "
        "at most storageAttempts times.",
    )
    anonymous: Flag = setting(
        False,
        "Sign no request to S3, for buckets that everybody may read. Credentials are "
        "not looked up.",
    )
    requester_pays: Flag = setting(
        False,
        "Agree to pay for requests and bytes, for buckets whose owner leaves that to "
        "the requester.",
    )
    plan_cache_bytes: Bytes = setting(
        256 << 20,
        "How much of the driver's disk may hold what planning has read of objects that "
        "do not change, such as the indexes of Pulsar's ledgers in S3. Then the next "
        "plan costs little more than a listing. 0: nothing is kept.",
    )
    plan_cache_path: Text = setting(
        None,
        "The directory for planCacheBytes, which belongs to the user alone. Empty: "
        "sparkcache in $XDG_CACHE_HOME, or in ~/.cache.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"endpoint={self.endpoint!r}: must be a URL such as "
                "https://s3.example.com"
            )


@dataclass(frozen=True, kw_only=True)
class CacheConfig(StorageConfig, ScanConfig, NodeConfig):
    """All settings of sparkcache. Sizes are in bytes, times in seconds.

    Raises ConfigError if a value is of the wrong type or out of range.
    """

    allowed_endpoints: Text = setting(
        None,
        "URLs of further S3 servers, with commas between them, that scans may name as "
        "their endpoint. A server gets the id of the access key and the session token.",
    )

    @property
    def node(self) -> NodeConfig:
        """The settings of the node."""
        return self._part(NodeConfig)

    @property
    def scan(self) -> ScanConfig:
        """The settings of a scan."""
        return self._part(ScanConfig)

    @property
    def storage(self) -> StorageConfig:
        """The settings of a storage."""
        return self._part(StorageConfig)

    @classmethod
    def resolve(
        cls,
        *,
        options: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        base: CacheConfig | None = None,
    ) -> CacheConfig:
        """Return the effective configuration.

        Args:
            options: Options of a scan by name, in any case. Unknown names are ignored,
                since the data source has further options.
            conf: Spark's conf. Keys that do not begin with `spark.sparkcache.` are
                ignored; all others must be settings, with exact upper and lower case.
            base: Values for settings that neither of them sets; if None, those of the
                file named by the variable `SPARKCACHE_CONF`, then the defaults.

        Raises ConfigError, also if the options name an endpoint that `conf` and `base`
        do not allow.

        """
        config = from_file() if base is None else base
        raw = {
            _lower_name(key): (key, value)
            for key, value in (conf or {}).items()
            if key.startswith(CONF_PREFIX) and key not in _NOT_SETTINGS
        }
        before = config._with(raw)
        config = before.with_options(options or {})
        if config.endpoint != before.endpoint:
            before._require_allowed(config.endpoint)
        return config

    def with_options(self, options: Mapping[str, str]) -> Self:
        """Return a copy with the options of a scan, whatever endpoint they name."""
        raw = {key.lower(): (key, value) for key, value in options.items()}
        return self._with(raw)

    def to_conf(self) -> dict[str, str]:
        """Return all settings as entries of a Spark conf."""
        return {
            CONF_PREFIX + spec.option: spec.show(getattr(self, spec.name))
            for spec in settings_of(CacheConfig)
        }

    def _require_allowed(self, endpoint: str | None) -> None:
        """Raise ConfigError if a scan may not name this endpoint.

        The reader of a table that others have defined would otherwise send its
        credentials to a server of their choice.
        """
        urls = f"{self.endpoint or ''},{self.allowed_endpoints or ''}".split(",")
        allowed = {url.strip().rstrip("/") for url in urls}
        if endpoint and endpoint.rstrip("/") not in allowed:
            raise ConfigError(
                f"option endpoint={endpoint!r}: not one of the S3 servers that a scan "
                "may name, since a server gets the id of the access key and the "
                "session token: set spark.sparkcache.endpoint or "
                "spark.sparkcache.allowedEndpoints, in sparkcache.install or in the "
                f"file that {CONF_FILE_VARIABLE} names"
            )

    def _with(self, raw: Mapping[str, tuple[str, str]]) -> Self:
        """Return a copy with changed settings.

        Args:
            raw: Key as the user wrote it and text, by option name in lower case.

        """
        changes: dict[str, Any] = {
            spec.name: spec.parse(*raw[spec.option.lower()])
            for spec in settings_of(CacheConfig)
            if spec.option.lower() in raw
        }
        return replace(self, **changes)

    def _part(self, part: type[_Part]) -> _Part:
        values = {spec.name: getattr(self, spec.name) for spec in settings_of(part)}
        return part(**values)


def scan_option_names() -> frozenset[str]:
    """Return the names of the settings that a single scan can override."""
    settings = settings_of(ScanConfig) + settings_of(StorageConfig)
    return frozenset(spec.option for spec in settings)


def node_option_names() -> frozenset[str]:
    """Return the names of the settings that apply to a whole node."""
    return frozenset(spec.option for spec in settings_of(NodeConfig))


def session_option_names() -> frozenset[str]:
    """Return the names of the settings that apply to a whole session."""
    names = {spec.option for spec in settings_of(CacheConfig)}
    return frozenset(names - scan_option_names() - node_option_names())


def from_file() -> CacheConfig:
    """Read the file named by `SPARKCACHE_CONF`: `key value` lines, as in Spark's."""
    path = os.environ.get(CONF_FILE_VARIABLE)
    if not path:
        return CacheConfig()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{CONF_FILE_VARIABLE}={path}: {error}") from error
    known = _lower_names()
    raw = {}
    for line_number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key, *value = _SEPARATOR.split(line, maxsplit=1)
        if key not in known:
            raise ConfigError(f"{path}:{line_number}: {suggest(key, known)}")
        raw[known[key]] = (f"{path}:{line_number}: {key}", "".join(value))
    return CacheConfig()._with(raw)


def _lower_name(key: str) -> str:
    """Return the option name of a conf key, in lower case; raises ConfigError."""
    known = _lower_names()
    if key not in known:
        raise ConfigError(suggest(key, known))
    return known[key]


@cache
def _lower_names() -> dict[str, str]:
    """Return the option names in lower case, by conf key."""
    options = [spec.option for spec in settings_of(CacheConfig)]
    return {CONF_PREFIX + option: option.lower() for option in options}
