"""Planned consumers: which scans DataFrames and pipeline flows will make."""
