"""Cases for one run with two times to live: 180 s unread, 10 s after a read.

The run is inserted at 0 s, unread. The expected results are those of Caffeine with
RocketMQ's `Expiry`; the cache and the node must behave in the same way. Steps:

    read    the run is read
    peek    a caller asks whether the run is held
    list    all runs are listed and counted
    near    a reader requests a neighbouring run and leaves
    pass    overdue runs are evicted, and this one is not overdue
"""

from __future__ import annotations

import pytest

Steps = list[tuple[str, float]]

NINES: Steps = [("read", at_s) for at_s in range(9, 523, 9)]

DUAL_TTL = [
    pytest.param([], 179.999999999, True, id="unread: held before the deadline"),
    pytest.param([], 180.0, False, id="unread: gone at the deadline itself"),
    pytest.param([], 500.0, False, id="unread: gone long after, too"),
    pytest.param([("pass", 179.9)], 179.95, True, id="an early pass does not evict it"),
    pytest.param([("pass", 179.9)], 180.0, False, id="an early pass prolongs nothing"),
    pytest.param([("read", 1)], 10.999999999, True, id="read: held until 10 s later"),
    pytest.param([("read", 1)], 11.0, False, id="read: gone exactly 10 s later"),
    pytest.param([("read", 0)], 9.999999999, True, id="read at once: held for 10 s"),
    pytest.param([("read", 0)], 10.0, False, id="read at once: and no longer"),
    pytest.param([("read", 179.9)], 189.8, True, id="a late read extends beyond 180"),
    pytest.param(
        [("read", 179.9)], 190.0, False, id="a late read extends by 10 s only"
    ),
    pytest.param(NINES, 531, True, id="read every 9 s: extended without limit"),
    pytest.param(NINES, 532, False, id="read every 9 s: gone 10 s after the last read"),
    pytest.param(
        [("read", 1), ("read", 1.5)], 11.4, True, id="reads within a second all count"
    ),
    pytest.param(
        [("read", 1), ("read", 1.5)],
        11.5,
        False,
        id="of reads within a second the last one counts",
    ),
    pytest.param([("peek", 1)], 12, True, id="a peek does not shorten"),
    pytest.param([("list", 1)], 12, True, id="a listing does not shorten"),
    pytest.param([("near", 1)], 12, True, id="a reader nearby does not shorten"),
    pytest.param([("pass", 1)], 12, True, id="a pass does not shorten"),
    pytest.param(
        [("read", 1), ("peek", 10), ("list", 10), ("near", 10), ("pass", 10)],
        11,
        False,
        id="after a read, none of these prolongs",
    ),
    pytest.param(
        [("peek", 179), ("list", 179), ("near", 179), ("pass", 179)],
        180,
        False,
        id="while it is unread, none of these prolongs",
    ),
]
