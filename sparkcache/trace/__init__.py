"""What was asked of a cache, as a text: who reads what, when, and what is planned.

A trace is lines of fields with blanks between them. The first line is
`sparkcache-trace 1`; empty lines and those that begin with `#` say nothing. Every other
line is an event: when, in seconds from any moment on and never less than on the line
before, then what:

    topic NUMBER NAME           the name is all that follows
    ledger NUMBER TOPIC ID      one version of a ledger, and one way to decode it
    extent NUMBER ID:FIRST-LAST AT STORED
                                entries, stored bytes of the topic before, and of it
    run NUMBER LEDGER FIRST-LAST STORED SIZE
                                stored bytes; decoded ones, or `-` if unknown so far
    size RUN SIZE               the decoded bytes of a run, now that they are known
    plan ID CONSUMER...         a plan begins
    stream BATCH ID CONSUMER... what a stream has still to read, from a batch on; of -1,
                                one to come, whose place the next that begins takes
    over ID...                  plans end
    open TASK STAGE.PARTITION.PART SCAN CONSUMER END EXTENTS FIRST STOP [PLAN...]
                                a task begins to read a partition
    take TASK RUN               it comes to a run
    read TASK RUN               it has finished with it
    close TASK                  it ends
    put RUN                     a run is there because somebody has written it

Topics, ledgers, extents, runs and tasks are called by number. Positions are
`ledger:entry`, a CONSUMER is `TOPIC@START..END`, where either position may be missing,
EXTENTS are numbers and ranges of them, as `0-3,7`. END is where in the topic the whole
scan ends, in stored bytes. FIRST and STOP are where the task begins and ends.
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
