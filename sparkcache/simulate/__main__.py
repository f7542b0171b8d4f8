"""Command line of `python -m sparkcache.simulate`: see the package."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcache.cache import Policy
from sparkcache.config import CacheConfig
from sparkcache.errors import ConfigError
from sparkcache.node.cache_settings import cache_settings
from sparkcache.simulate.belady import belady
from sparkcache.simulate.replay import simulate
from sparkcache.trace import parse
from sparkcache.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.simulate.outcome import Outcome
    from sparkcache.trace import Trace

_RING = "ring"
_CHOICES = (*(policy.value for policy in Policy), _RING)
_ROW = "{:>10} {:16} {:>8} {:>8} {:>12} {:>8} {:>10}"
_MIB = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of policies and sizes; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m sparkcache.simulate",
        description="Show what a recorded pipeline would have read from storage with "
        "other settings. MIN is an oracle: no policy reads less if all runs have one "
        "size, and hardly less otherwise.",
    )
    parser.add_argument(
        "trace",
        type=Path,
        help="a trace file, as recorded with spark.sparkcache.trace",
    )
    parser.add_argument(
        "--policy",
        action="append",
        choices=_CHOICES,
        help="the eviction policy, or ring for the other engine; may be repeated; "
        "default: all, or only the ring if --conf selects that engine",
    )
    parser.add_argument(
        "--max-bytes",
        action="append",
        help="size of the cache, such as 512m; may be repeated; default: 10, 25, 50 "
        "and 100 %% of the size of the runs in the trace",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the cache, such as spark.sparkcache.ttlExpected=10min",
    )
    options = parser.parse_args(arguments)
    try:
        lines = options.trace.read_text(encoding="utf-8").splitlines()
        trace = parse(lines, str(options.trace))
        sizes = [_size(text) for text in options.max_bytes or ()] or _shares(trace)
        conf = dict(_conf(text) for text in options.conf)
        config = CacheConfig.resolve(conf=conf)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    chosen = options.policy or ((_RING,) if config.engine == _RING else _CHOICES)
    for line in table(trace, sizes, chosen, config):
        print(line)
    return 0


def table(
    trace: Trace, sizes: Sequence[int], policies: Sequence[str], config: CacheConfig
) -> Iterator[str]:
    """Yield a table line for each size and policy (or the ring), and for the oracle."""
    yield _ROW.format(
        "maxBytes", "policy", "runs", "loaded", "MiB loaded", "GETs", "saved"
    )
    for max_bytes in sizes:
        for policy in policies:
            sized = replace(_with_policy(config, policy), max_bytes=max_bytes)
            settings = cache_settings(sized, sys.maxsize)
            # The oracle does not round sizes up to pages.
            outcome = simulate(trace, replace(settings, granule_bytes=1))
            yield _line(max_bytes, policy, outcome)
        yield _line(max_bytes, "MIN", belady(trace, max_bytes))


def _with_policy(config: CacheConfig, policy: str) -> CacheConfig:
    """Return the configuration with this policy, or with the ring engine."""
    if policy == _RING:
        return replace(config, engine="ring")
    return CacheConfig.resolve(
        options={"engine": "runs", "policy": policy}, base=config
    )


def _line(max_bytes: int, policy: str, outcome: Outcome) -> str:
    saved = 1 - outcome.loaded_bytes / max(outcome.read_bytes, 1)
    return _ROW.format(
        format_bytes(max_bytes),
        policy,
        outcome.reads,
        outcome.loads,
        f"{outcome.loaded_bytes / _MIB:.1f}",
        outcome.gets,
        f"{saved:.1%}",
    )


def _shares(trace: Trace) -> list[int]:
    """Return the default cache sizes: shares of the size of all runs of a trace."""
    whole_bytes = sum(map(trace.size_bytes, trace.runs))
    return [max(round(whole_bytes * share), 1) for share in (0.1, 0.25, 0.5, 1.0)]


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"--max-bytes {text}: must be {error}") from error


def _conf(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--conf {text}: must be KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
