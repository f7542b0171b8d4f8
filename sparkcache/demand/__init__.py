"""The demand for runs: which planned scans have still to read them, and when.

Pure: no I/O, no clock. Start with `forecast`; every other module is a part of it.
"""

from sparkcache.demand.cursor import PartitionRead
from sparkcache.demand.expected_reads import ExpectedReads
from sparkcache.demand.forecast import Forecast
from sparkcache.demand.plan import NOT_BEGUN, Consumer, Consumers, Plan
from sparkcache.demand.reader_identity import ReaderIdentity
from sparkcache.demand.topic_layout import ExtentOffset

__all__ = [
    "NOT_BEGUN",
    "Consumer",
    "Consumers",
    "ExpectedReads",
    "ExtentOffset",
    "Forecast",
    "PartitionRead",
    "Plan",
    "ReaderIdentity",
]
