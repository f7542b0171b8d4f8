"""The isolation of a scan: committed messages of transactions, or all messages.

Source: `isolation.level` of Kafka's consumers. Pulsar's client has only the first.
Different here: a scan of all messages gets the state of each transaction.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTION = "isolation"
STATE = pa.field("__txnState", pa.string())
"""A column of scans that read uncommitted messages; null without transaction."""


class Isolation(StrEnum):
    """Whether to read messages of transactions that are aborted or not yet decided."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class State(StrEnum):
    """How a transaction ended, as far as the topic's ledgers show."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNDECIDED = "undecided"


def isolation_of(options: Mapping[str, str]) -> Isolation:
    """Return the isolation that the options set; raises ConfigError."""
    text = options.get(OPTION, Isolation.COMMITTED)
    try:
        return Isolation(text.strip().lower())
    except ValueError:
        raise ConfigError(
            f"option {OPTION}={text!r}: must be {' or '.join(Isolation)}"
        ) from None
