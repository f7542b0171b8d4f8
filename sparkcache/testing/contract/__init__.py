"""The contract of connectors: what `sparkcache.connector` asks of each of them.

    rows, losses = check_connector(MyConnector(), storage, "orders")

reads a topic as sparkcache does, and in the other ways in which it may be read: run by
run, a few bytes at a time, with runs of another size, by several tasks. A rule that
does not hold raises AssertionError, and its message states the rule.

    check        the check of a connector on a topic
    planning     constants, names, options, ledgers, extents
    reading      runs, batches, rows, times
    changes      the change log of a table
"""

from sparkcache.testing.contract.check import RUN_BYTES, check_connector

__all__ = ["RUN_BYTES", "check_connector"]
