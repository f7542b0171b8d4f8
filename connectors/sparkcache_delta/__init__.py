"""Reads Delta tables and folders of Parquet files, without a JVM."""

from sparkcache_delta.connector import DeltaConnector

__all__ = ["DeltaConnector"]
