"""What users can set: one frozen record, and how its values are found.

A value is taken from the first place that has it: the options of a scan, the Spark
conf `spark.sparkcache.*`, a conf file, the default. `conf/sparkcache.conf` is
written by `python -m sparkcache.config`.
"""

from __future__ import annotations

import difflib
import os
import re
import textwrap
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sparkcache.errors import ConfigError
from sparkcache.units import (
    format_bytes,
    format_seconds,
    parse_bool,
    parse_bytes,
    parse_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONF_PREFIX = "spark.sparkcache."
PLANS_CONF = CONF_PREFIX + "plans"  # not a setting: what sparkcache.plan() says
CONF_FILE_VARIABLE = "SPARKCACHE_CONF"

_LONGEST_S = 1_000_000_000  # endless, for any practical purpose, and yet a number
_SEPARATOR = re.compile(r"\s*=\s*|\s+")
ENGINES = ("runs", "ring")
POLICIES = ("next-read", "expected-reads", "lru")

Setting: TypeAlias = "bool | int | float | str | None"
_S = TypeVar("_S", bound=Setting)
_TYPES: dict[Any, tuple[type, ...]] = {  # by annotation
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "str | None": (str, type(None)),
}


def _setting(
    default: _S,
    doc: str,
    *,
    parse: Callable[[str], _S],
    show: Callable[[_S], str] = str,
    least: float | None = None,
    most: float | None = None,
    scan: bool = False,
) -> _S:
    return field(
        default=default,
        metadata={
            "doc": doc,
            "parse": parse,
            "show": show,
            "least": least,
            "most": most,
            "scan": scan,
        },
    )


def _is_within(value: float, least: float | None, most: float | None) -> bool:
    """Tell whether a value is within limits; NaN is within none."""
    return (least is None or value >= least) and (most is None or value <= most)


def _bytes(default: int, doc: str, *, least: int = 0, scan: bool = False) -> int:
    return _setting(
        default, doc, parse=parse_bytes, show=format_bytes, least=least, scan=scan
    )


def _seconds(
    default: float, doc: str, *, least: float = 0, scan: bool = False
) -> float:
    return _setting(
        default,
        doc,
        parse=parse_seconds,
        show=format_seconds,
        least=least,
        most=_LONGEST_S,
        scan=scan,
    )


def _bool(default: bool, doc: str, *, scan: bool = False) -> bool:
    return _setting(
        default,
        doc,
        parse=parse_bool,
        show=lambda value: str(value).lower(),
        scan=scan,
    )


def _text(default: str | None, doc: str, *, scan: bool) -> str | None:
    return _setting(default, doc, parse=str, show=lambda value: value or "", scan=scan)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """How sparkcache behaves. Sizes are in bytes, times in seconds.

    Raises ConfigError if a value is of the wrong type or out of range.
    """

    enabled: bool = _bool(
        True, "Off: every task loads for itself, as if there were no node.", scan=True
    )
    max_bytes: int = _bytes(
        1 << 30,
        "Hard limit of an executor's cache: runs held, being loaded, and mapped by "
        "readers. 0 turns keeping off.",
    )
    run_bytes: int = _bytes(
        2 << 20,
        "Stored bytes of a run, the unit that is cached. Decoded it is larger by the "
        "compression ratio.",
        least=1024,
        scan=True,
    )
    batch_bytes: int = _bytes(
        1 << 20, "Decoded bytes of a record batch.", least=1024, scan=True
    )
    partition_bytes: int = _bytes(
        64 << 20, "Stored bytes of a Spark partition, about.", least=1024, scan=True
    )
    engine: str = _setting(
        ENGINES[0],
        "How runs are held. runs: each by itself, and which goes next is for policy to "
        "say. ring: in segments that are written round and round, the oldest given up "
        "whole (PIP-174); policy, trigger, watermark, maxRequeues and all ttl settings "
        "mean nothing then. A change empties the cache.",
        parse=str,
    )
    segment_bytes: int = _bytes(
        0,
        "Size of a ring's segment; a run that is larger is served without being kept. "
        "There are 2 to 512 of them, whatever this says. 0: a 32nd of maxBytes, or 16m "
        "where that is more.",
    )
    copy_entries: bool = _bool(
        True,
        "Runs of a ring lie in its segments, which readers map once. A process that a "
        "task forks must not use what it has inherited of them once the task has let "
        "go. Off: each has memory of its own, and a segment is a list of them.",
    )
    policy: str = _setting(
        POLICIES[0],
        "Which run goes when there is no room for another. next-read: the one that "
        "its next planned reader comes to last. expected-reads: the oldest, but one "
        "that planned readers will come to is queued again (PIP-430). lru: the one "
        "not accessed for longest.",
        parse=str,
    )
    trigger: float = _setting(
        0.98,
        "Runs are evicted when more than this share of maxBytes is held. Policy "
        "next-read evicts what it must, whatever this and watermark say.",
        parse=float,
        least=0.01,
        most=1,
    )
    watermark: float = _setting(
        0.90, "Eviction goes on down to this share.", parse=float, least=0.01, most=1
    )
    ttl_create_s: float = _seconds(
        180, "How long a run lives that nobody has read yet. 0: see ttl."
    )
    ttl_after_read_s: float = _seconds(
        10, "How long a run lives after it was last read. 0: see ttl."
    )
    ttl_s: float = _seconds(
        15,
        "Takes the place of ttlCreate or ttlAfterRead where one of them is 0; where "
        "both are, a run lives this long after it was last touched.",
    )
    ttl_expected_s: float = _seconds(
        3600, "How long a run waits for a planned reader before it is queued again."
    )
    max_life_s: float = _seconds(
        0,
        "How long a run lives in all since it was loaded, whatever is read of it or "
        "planned: a run read every 9 s outlives ttlAfterRead for ever. What a task has "
        "mapped by then stays valid. 0: no cap.",
    )
    max_requeues: int = _setting(
        5,
        "How often a run is queued again while planned readers have not come.",
        parse=int,
        least=0,
    )
    continue_caching_s: float = _seconds(
        30,
        "How long after the last stream of a topic has ended runs are taken in as if "
        "it read on from where it was, for when it is started again (PIP-430).",
    )
    extend_recently_accessed: bool = _bool(
        False, "Queue a run again that was accessed since the last look at it."
    )
    drop_after_last_read: bool = _bool(
        True, "Let go of a run at once when its last planned reader has read it."
    )
    read_ahead_bytes: int = _bytes(
        32 << 20,
        "Decoded bytes that are loaded ahead of each reader at most: at once if it is "
        "planned, otherwise as it has read as much. 0: none.",
    )
    trace: str | None = _text(
        None,
        "Directory in which each node records what it is asked for, for "
        "python -m sparkcache.simulate. Empty: nothing is recorded.",
        scan=False,
    )
    loaders: int = _setting(
        0, "Loader processes of a node. 0: one per core.", parse=int, least=0, most=256
    )
    startup_timeout_s: float = _seconds(
        20, "How long a task waits for a node to start.", scan=True
    )
    request_timeout_s: float = _seconds(
        120, "How long a task waits for a run before it loads for itself.", scan=True
    )
    endpoint: str | None = _text(
        None, "URL of the S3 server. Empty: as boto3 finds it.", scan=True
    )
    region: str | None = _text(
        None, "Region of the S3 server. Empty: as boto3 finds it.", scan=True
    )
    path_style: bool = _bool(
        False, "Address buckets as endpoint/bucket, not bucket.endpoint.", scan=True
    )
    storage_attempts: int = _setting(
        5,
        "How often a request to the storage is tried, with back-off.",
        parse=int,
        least=1,
        scan=True,
    )
    storage_timeout_s: float = _seconds(
        30, "How long a request to the storage may be silent.", least=0.001, scan=True
    )

    def __post_init__(self) -> None:
        for spec in fields(self):
            value, show = getattr(self, spec.name), spec.metadata["show"]
            if type(value) not in _TYPES[spec.type]:
                raise ConfigError(
                    f"{spec.name}={value!r}: must be {spec.type}, such as "
                    f"{spec.default!r}"
                )
            least, most = spec.metadata["least"], spec.metadata["most"]
            if not _is_within(value, least, most):
                limits = f"at least {show(least)}"
                if most is not None:
                    limits = f"{show(least)} to {show(most)}"
                raise ConfigError(
                    f"{option_name(spec)}={show(value)}: must be {limits}"
                )
        for name, known in (("policy", POLICIES), ("engine", ENGINES)):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}: must be one of {', '.join(known)}"
                )
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"endpoint={self.endpoint!r}: must be a URL such as "
                "https://s3.example.com"
            )
        if self.watermark > self.trigger:
            raise ConfigError(
                f"watermark={self.watermark}: must not be above trigger={self.trigger}"
            )

    @classmethod
    def resolve(
        cls,
        *,
        options: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        base: CacheConfig | None = None,
    ) -> CacheConfig:
        """Return the configuration in force.

        Args:
            options: Of a scan, by option name in any case. Unknown names are ignored:
                the data source has options of its own.
            conf: Spark's conf. Keys that do not begin with `spark.sparkcache.` are
                ignored; others have to be settings, upper and lower case as documented.
            base: What holds where neither says anything; if None, the file that the
                variable `SPARKCACHE_CONF` names, then the defaults.

        """
        config = from_file() if base is None else base
        given = {
            _setting_of(key): (key, value)
            for key, value in (conf or {}).items()
            if key.startswith(CONF_PREFIX) and key != PLANS_CONF
        }
        given |= {key.lower(): (key, value) for key, value in (options or {}).items()}
        return config._with(given)

    def to_conf(self) -> dict[str, str]:
        """Return every setting as a Spark conf."""
        return {
            CONF_PREFIX + option_name(spec): spec.metadata["show"](
                getattr(self, spec.name)
            )
            for spec in fields(self)
        }

    def _with(self, given: Mapping[str, tuple[str, str]]) -> CacheConfig:
        changes: dict[str, Any] = {
            spec.name: _parse(spec, *given[option_name(spec).lower()])
            for spec in fields(self)
            if option_name(spec).lower() in given
        }
        return replace(self, **changes)


def option_name(spec: Field[Any]) -> str:
    """Return a setting's name for users: `max_bytes` is `maxBytes`."""
    words = spec.name.removesuffix("_s").split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])


def scan_option_names() -> frozenset[str]:
    """Return the settings that a single scan may have of its own."""
    return frozenset(
        option_name(spec) for spec in fields(CacheConfig) if spec.metadata["scan"]
    )


def node_option_names() -> frozenset[str]:
    """Return the settings that hold for a whole node."""
    return frozenset(map(option_name, fields(CacheConfig))) - scan_option_names()


def _setting_of(key: str) -> str:
    """Return the name in a conf key, in lower case; raises ConfigError."""
    known = {CONF_PREFIX + option_name(spec) for spec in fields(CacheConfig)}
    if key not in known:
        raise ConfigError(suggest(key, frozenset(known)))
    return key.removeprefix(CONF_PREFIX).lower()


def from_file() -> CacheConfig:
    """Read the file that `SPARKCACHE_CONF` names: `key value` lines, as Spark's."""
    path = os.environ.get(CONF_FILE_VARIABLE)
    if not path:
        return CacheConfig()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{CONF_FILE_VARIABLE}={path}: {error}") from error
    known = {
        CONF_PREFIX + option_name(spec): option_name(spec).lower()
        for spec in fields(CacheConfig)
    }
    given = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key, *value = _SEPARATOR.split(line, maxsplit=1)
        if key not in known:
            raise ConfigError(f"{path}:{number}: {suggest(key, known)}")
        given[known[key]] = (f"{path}:{number}: {key}", "".join(value))
    return CacheConfig()._with(given)


def suggest(name: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """Say that a name is unknown, and which one may have been meant."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]}?" if close else f"known: {sorted(known)}"
    return f"unknown option {name}; {hint}"


def conf_file() -> str:
    """Return a conf file that documents every setting with its default."""
    parts = [
        "# Settings of sparkcache, each with its default. Use this file by setting "
        f"{CONF_FILE_VARIABLE}\n# to its path, or give the lines as Spark conf. "
        "Those marked (scan) are options of a\n# single scan as well. What plans a "
        "query sees Spark's conf only as sparkcache.install\n# has shipped it: that "
        "concerns endpoint, region, pathStyle, storageAttempts,\n# storageTimeout and "
        "partitionBytes.\n"
    ]
    defaults = CacheConfig().to_conf()
    for spec in fields(CacheConfig):
        scope = " (scan)" if spec.metadata["scan"] else ""
        doc = textwrap.wrap(spec.metadata["doc"] + scope, width=85)
        key = CONF_PREFIX + option_name(spec)
        parts.append("".join(f"# {line}\n" for line in doc))
        parts[-1] += f"#{key} {defaults[key]}".rstrip() + "\n"
    return "\n".join(parts)


def _parse(spec: Field[Any], key: str, text: str) -> Setting:
    if spec.default is None and not text:
        return None
    try:
        value: Setting = spec.metadata["parse"](text)
    except ValueError as error:
        wanted = {int: "a whole number", float: "a number"}.get(
            spec.metadata["parse"], str(error)
        )
        raise ConfigError(f"{key}={text!r}: must be {wanted}") from error
    return value


if __name__ == "__main__":
    print(conf_file(), end="")
