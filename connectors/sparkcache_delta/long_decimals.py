"""Decimals stored in more bytes than the 16 that Arrow reads, of which few are needed.

The columns are read as bytes, most significant first, and all but the last 16 must only
repeat the sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow.parquet as pq

_BYTES = 16
_MOST_DIGITS = 38


def leaves(metadata: pq.FileMetaData, names: Collection[str]) -> dict[int, str]:
    """Return those of the named columns that are such decimals, by their indexes.

    Columns within structs, lists and maps are not among them.
    """
    schema = metadata.schema
    columns = ((index, schema.column(index)) for index in range(len(schema)))
    return {
        index: column.name
        for index, column in columns
        if column.name in names
        and column.path == column.name
        and not column.max_repetition_level
        and column.physical_type == "FIXED_LEN_BYTE_ARRAY"
        and column.converted_type == "DECIMAL"
        and column.length > _BYTES
        and column.precision <= _MOST_DIGITS
    }


def decimals(stored: pa.FixedSizeBinaryArray, field: pa.Field) -> pa.Array:
    """Return the decimals that are stored as bytes.

    Raises pa.ArrowInvalid if any needs more than 16 bytes.
    """
    rows, width = len(stored), stored.type.byte_width
    data = stored.buffers()[1]
    if data is None or stored.null_count == rows:
        return pa.nulls(rows, field.type)
    octets = np.frombuffer(data, np.uint8, rows * width, stored.offset * width)
    octets = octets.reshape(rows, width)
    first, last = octets[:, :-_BYTES], octets[:, -_BYTES:]
    sign = np.where(last[:, :1] > 0x7F, 0xFF, 0).astype(np.uint8)
    is_known = stored.is_valid().to_numpy(zero_copy_only=False)
    if (first != sign)[is_known].any():
        raise pa.ArrowInvalid(
            f"column {field.name}: a decimal that needs more than {_BYTES} of its "
            f"{width} bytes"
        )
    validity = pa.py_buffer(np.packbits(is_known, bitorder="little"))
    values = pa.py_buffer(last[:, ::-1].tobytes())  # the least significant byte first
    return pa.Array.from_buffers(field.type, rows, [validity, values])
