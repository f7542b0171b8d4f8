"""Decimals stored in more bytes than the 16 that Arrow reads, of which few are needed.

The columns are read as bytes, most significant first, and all but the last 16 must only
repeat the sign.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

BYTES = 16
"""How many bytes Arrow reads."""

MOST_DIGITS = 38
"""How many digits they can have, as Spark's decimals."""


def decimals(
    stored: pa.FixedSizeBinaryArray, kind: pa.DataType, column: str
) -> pa.Array:
    """Return the decimals that are stored as bytes.

    Raises pa.ArrowInvalid, with the name of the column, if any needs more than 16
    bytes.
    """
    rows, width = len(stored), stored.type.byte_width
    data = stored.buffers()[1]
    if data is None or stored.null_count == rows:
        return pa.nulls(rows, kind)
    octets = np.frombuffer(data, np.uint8, rows * width, stored.offset * width)
    octets = octets.reshape(rows, width)
    first, last = octets[:, :-BYTES], octets[:, -BYTES:]
    sign = np.where(last[:, :1] > 0x7F, 0xFF, 0).astype(np.uint8)
    is_known = stored.is_valid().to_numpy(zero_copy_only=False)
    if (first != sign)[is_known].any():
        raise pa.ArrowInvalid(
            f"column {column}: a decimal that needs more than {BYTES} of its "
            f"{width} bytes"
        )
    validity = pa.py_buffer(np.packbits(is_known, bitorder="little"))
    values = pa.py_buffer(last[:, ::-1].tobytes())  # the least significant byte first
    return pa.Array.from_buffers(kind, rows, [validity, values])
