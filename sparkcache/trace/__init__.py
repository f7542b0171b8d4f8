"""Traces: the reads and plans that a cache has seen, as text.

A trace consists of lines of fields separated by blanks. The first line is
`sparkcache-trace 1`; empty lines and lines that begin with `#` are ignored. Every other
line is an event: its time, in seconds from any origin and never less than on the line
before, then its kind and fields:

    topic NUMBER NAME           a topic; the name is the rest of the line
    ledger NUMBER TOPIC ID      one version of a ledger, and one way to decode it
    extent NUMBER ID:FIRST-LAST OFFSET STORED
                                its entries, its offset in the topic, its stored bytes
    run NUMBER LEDGER FIRST-LAST STORED SIZE
                                stored bytes; decoded bytes, or `-` if still unknown
    size RUN SIZE               the decoded bytes of a run, once they are known
    plan ID CONSUMER...         a plan begins
    stream BATCH ID CONSUMER... what a stream has still to read, from a batch on; batch
                                -1: a placeholder that the next stream replaces
    over ID...                  plans end
    open TASK STAGE.PARTITION.PART SCAN CONSUMER END EXTENTS FIRST STOP [PLAN...]
                                a task begins to read a partition
    take TASK RUN               the task takes a run
    read TASK RUN               the task has finished with a run
    close TASK                  the task ends
    put RUN                     a run is inserted because somebody has written it

Numbers identify topics, ledgers, extents, runs and tasks. Positions are `ledger:entry`;
a CONSUMER is `TOPIC@START..END`, where either position may be missing; EXTENTS are
numbers and ranges of numbers, such as `0-3,7`. The END of a task is the offset in the
topic where the whole scan ends, in stored bytes. FIRST and STOP are the positions where
the task begins and ends.
"""

from sparkcache.trace.events import (
    Begin,
    Close,
    Event,
    Open,
    Over,
    Put,
    Read,
    Sizes,
    Take,
    Trace,
)
from sparkcache.trace.parsing import parse
from sparkcache.trace.writing import TraceWriter

__all__ = [
    "Begin",
    "Close",
    "Event",
    "Open",
    "Over",
    "Put",
    "Read",
    "Sizes",
    "Take",
    "Trace",
    "TraceWriter",
    "parse",
]
