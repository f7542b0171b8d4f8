"""Batch scans: how topics are cut into Spark partitions, and how a task reads one."""
