"""Settings of a cache: how much it may hold, and for how long.

Source of the times to live: Apache RocketMQ, tiered storage, issue 10572 (create and
after-read) and Apache Pulsar PIP-430 (a single one, requeues). Source of trigger and
watermark: PIP-430. Different here: the limit is hard, and the trigger can be set.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from math import inf

_SEGMENTS = 32
_LEAST_BYTES = 16 << 20


class Policy(Enum):
    """Which run is evicted when memory is needed."""

    NEXT_READ = "next-read"  # the run whose next planned read is farthest away
    EXPECTED_READS = "expected-reads"  # the oldest; runs with reads to come are spared
    LRU = "lru"  # the run not accessed for longest, regardless of plans


@dataclass(frozen=True, slots=True)
class Ttl:
    """Times to live of a run, in seconds. 0 expires it at once, `math.inf` never.

    Attributes:
        create_s: Of a run that was not read and has no reads to come: since it was
            inserted.
        after_read_s: Of a run that was read and has no reads to come: since its last
            read. None: reads change nothing, as in PIP-430. May exceed `create_s`.
        expected_s: Of a run with reads to come: since it was inserted, read or
            requeued, whichever was last.
        max_life_s: The maximum age of any run: since it was inserted. A hard cap,
            because the other times restart again and again.

    """

    create_s: float
    after_read_s: float | None
    expected_s: float
    max_life_s: float = inf

    def __post_init__(self) -> None:
        _require_time("create_s", self.create_s)
        _require_time("expected_s", self.expected_s)
        _require_time("max_life_s", self.max_life_s)
        if self.after_read_s is not None:
            _require_time("after_read_s", self.after_read_s)


def resolve_ttl(
    create_s: float,
    after_read_s: float,
    *,
    legacy_s: float,
    expected_s: float,
    max_life_s: float = 0.0,
) -> Ttl:
    """Return the times to live that apply if some are switched off (0 or negative).

    If one of `create_s` and `after_read_s` is off, it takes the legacy duration. If
    both are off, or the legacy duration is off too, the legacy policy applies, which is
    `legacy_s` since the last access; if that is off, runs are kept only for expected
    reads. If `max_life_s` is off, the age is not limited.
    """
    legacy_s = max(legacy_s, 0.0)
    cap_s = max_life_s if max_life_s > 0 else inf
    both_off = create_s <= 0 and after_read_s <= 0
    one_off = create_s <= 0 or after_read_s <= 0
    if both_off or (one_off and not legacy_s):
        return Ttl(legacy_s, legacy_s, expected_s, cap_s)
    return Ttl(
        create_s if create_s > 0 else legacy_s,
        after_read_s if after_read_s > 0 else legacy_s,
        expected_s,
        cap_s,
    )


@dataclass(frozen=True, slots=True)
class Ring:
    """The segments of a ring.

    Attributes:
        segment_bytes: Size of a segment. A run that is larger is refused.
        copies: Whether runs are copied into segments. Otherwise each run has memory of
            its own, and a segment is a list of runs.

    """

    segment_bytes: int
    copies: bool = True

    def __post_init__(self) -> None:
        if self.segment_bytes < 0:
            raise ValueError(f"segment_bytes is {self.segment_bytes}: use 0 or more")


def resolve_ring(
    max_bytes: int,
    segment_bytes: int,
    *,
    copies: bool = True,
    most_segments: int = sys.maxsize,
    granule_bytes: int = 1,
) -> Ring:
    """Return a ring with as many segments as fit, but at least two.

    `segment_bytes` 0 means a 32nd of `max_bytes`, but at least 16 MiB, since the ring
    evicts a whole segment at a time and no run can be larger than a segment.

    Source: Apache Pulsar PIP-174 and Apache BookKeeper's ReadCache, where a segment has
    1 GiB by default. Different here: many small segments.
    """
    wanted_bytes = segment_bytes or max(max_bytes // _SEGMENTS, _LEAST_BYTES)
    count = min(max(max_bytes // wanted_bytes, 2), most_segments)
    size_bytes = max_bytes // max(count, 1)
    return Ring(size_bytes - size_bytes % granule_bytes, copies)


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits and the policy of a cache. All may change while it runs.

    Attributes:
        max_bytes: The held bytes never exceed this. 0: nothing is held at all.
        max_runs: How many runs are held at most.
        policy: Which run is evicted next.
        ttl: How long runs live.
        trigger: A reservation evicts if more than this share of `max_bytes` would be
            held... NEXT_READ ignores both shares and evicts only what it must.
        watermark: ...and then evicts until at most this share is held.
        get_cost_bytes: What a GET costs, in bytes that could be read instead, for
            NEXT_READ.
        max_requeues: How often a run with reads to come is spared.
        continue_s: How long a topic's last stream stays in the forecast after its end.
        extend_recently_accessed: Whether a run that was accessed since a pass last
            spared it is spared again. Off in Pulsar since 5.0, because it keeps runs
            that everybody has read.
        drop_after_last_read: Whether the last planned read removes a run.
        granule_bytes: A run with memory of its own takes a multiple of this: a page.
        ring: The segments, if the engine is a ring: see `RingCache`.

    """

    max_bytes: int
    max_runs: int
    ttl: Ttl
    policy: Policy = Policy.EXPECTED_READS
    trigger: float = 0.98
    watermark: float = 0.90
    get_cost_bytes: int = 0
    max_requeues: int = 5
    continue_s: float = 0.0
    extend_recently_accessed: bool = False
    drop_after_last_read: bool = True
    granule_bytes: int = 1
    ring: Ring | None = None

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_runs", "get_cost_bytes", "max_requeues"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: use 0 or more")
        if not 0 < self.trigger <= 1:
            raise ValueError(f"trigger is {self.trigger}: use a share in (0, 1]")
        if not 0 < self.watermark <= self.trigger:
            raise ValueError(
                f"watermark is {self.watermark}: use a share in (0, {self.trigger}], "
                "up to the trigger"
            )

    def rounded(self, size_bytes: int) -> int:
        """Return the bytes that a run takes if it has memory of its own."""
        if size_bytes < 0:
            raise ValueError(f"size_bytes is {size_bytes}: use 0 or more")
        return max(-(-size_bytes // self.granule_bytes), 1) * self.granule_bytes

    @property
    def trigger_bytes(self) -> int:
        """Bytes above which a reservation evicts."""
        if self.policy is Policy.NEXT_READ:
            return self.max_bytes
        return int(self.max_bytes * self.trigger)

    @property
    def watermark_bytes(self) -> int:
        """Bytes that may still be held after such an eviction."""
        if self.policy is Policy.NEXT_READ:
            return self.max_bytes
        return int(self.max_bytes * self.watermark)


def _require_time(name: str, value_s: float) -> None:
    if not 0 <= value_s <= inf:  # also refuses NaN
        raise ValueError(f"{name} is {value_s}: use 0 or more seconds")
