"""Times stored as INT96: nanoseconds of a day, and the Julian number of the day.

Arrow takes both numbers to be positive, so that it shifts other times by centuries. The
columns are therefore read as bytes, and the times are computed as Spark computes them:
in 64 bits of microseconds, however far the day and its nanoseconds reach.

Source: Spark's DateTimeUtils.fromJulianDay, and values that Spark 4.2 returned.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

BYTES = 12
KIND = pa.timestamp("us")
"""The type that Arrow gives these columns, if it is asked for microseconds."""

_PARTS = np.dtype([("nanoseconds", "<i8"), ("day", "<i4")])
_DAY_OF_1970 = np.int32(2_440_588)
_DAY_US = np.int64(86_400_000_000)


def times(stored: pa.FixedSizeBinaryArray) -> pa.TimestampArray:
    """Return the times that are stored as bytes."""
    rows = len(stored)
    data = stored.buffers()[1]
    if data is None or stored.null_count == rows:
        return pa.nulls(rows, KIND)
    parts = np.frombuffer(data, _PARTS, rows, stored.offset * BYTES)
    nanoseconds = parts["nanoseconds"]
    # Towards zero, as in Java; neither it nor Java minds an overflow.
    of_day_us = nanoseconds // 1000 + ((nanoseconds < 0) & (nanoseconds % 1000 != 0))
    days = (parts["day"] - _DAY_OF_1970).astype(np.int64)
    missing = stored.is_null().to_numpy(zero_copy_only=False)
    return pa.array(days * _DAY_US + of_day_us, pa.int64(), mask=missing).view(KIND)
