"""Arrow schemas as Spark makes them from its own types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from sparkcache.source.spark_version import has_spark


def as_arrow(struct: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, with times in UTC."""
    zone: dict[str, Any] = {"timezone": "UTC"} if has_spark("4.2") else {}
    return to_arrow_schema(struct, **zone)


def as_spark_has_it(schema: pa.Schema) -> pa.Schema:
    """Return the schema after Spark has taken it for its own and given it back."""
    return as_arrow(from_arrow_schema(schema, prefer_timestamp_ntz=True))
