"""Connector for Delta tables and folders of Parquet files; needs no JVM."""

from sparkcache_delta.connector import DeltaConnector

__all__ = ["DeltaConnector"]
