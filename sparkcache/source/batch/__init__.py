"""Batch scans: cutting topics into Spark partitions, and reading one in a task."""
