"""Which planned scans have still to read a run. Pure: no I/O, no clock."""

from sparkcache.consumers.expected_reads import ExpectedReads
from sparkcache.consumers.plan import Consumer, Plan

__all__ = ["Consumer", "ExpectedReads", "Plan"]
