"""Planned consumers: the scans that DataFrames and pipeline flows will run."""
