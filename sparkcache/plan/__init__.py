"""Which planned scans have still to read a run. Pure: no I/O, no clock."""

from sparkcache.plan.consumers import Consumer, Plan
from sparkcache.plan.expected_reads import ExpectedReads

__all__ = ["Consumer", "ExpectedReads", "Plan"]
