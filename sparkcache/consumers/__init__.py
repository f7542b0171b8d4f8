"""Which planned scans have still to read a run, and when. Pure: no I/O, no clock.

Start with `forecast`; every other module is one of its parts.
"""

from sparkcache.consumers.axis import Located
from sparkcache.consumers.cursor import Reading
from sparkcache.consumers.expected_reads import ExpectedReads
from sparkcache.consumers.forecast import Forecast
from sparkcache.consumers.plan import NOT_BEGUN, Consumer, Consumers, Plan
from sparkcache.consumers.reader import Reader

__all__ = [
    "NOT_BEGUN",
    "Consumer",
    "Consumers",
    "ExpectedReads",
    "Forecast",
    "Located",
    "Plan",
    "Reader",
    "Reading",
]
