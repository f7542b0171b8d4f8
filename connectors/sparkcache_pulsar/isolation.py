"""Which messages of transactions a scan wants: those committed, or all of them.

Source: what Kafka's consumers call `isolation.level`. Pulsar's client has the first
only. Different here: who wants all is told the state of each transaction.
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
"""A column that only who reads uncommitted messages gets; null without transaction."""


class Isolation(StrEnum):
    """What becomes of messages whose transaction was aborted, or not decided yet."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class State(StrEnum):
    """How a transaction ended, as far as the topic's ledgers tell."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNDECIDED = "undecided"


def isolation_of(options: Mapping[str, str]) -> Isolation:
    """Return what the option says; raises ConfigError."""
    text = options.get(OPTION, Isolation.COMMITTED)
    try:
        return Isolation(text.strip().lower())
    except ValueError:
        raise ConfigError(
            f"option {OPTION}={text!r}: must be {' or '.join(Isolation)}"
        ) from None


def with_isolation(isolation: Isolation, decoding: str) -> str:
    """Return what says how to decode records, with a line before it if need be."""
    if isolation is Isolation.COMMITTED:
        return decoding
    return f"{isolation}\n{decoding}"


def parted(decoding: str) -> tuple[Isolation, str]:
    """Return what `with_isolation` has put together."""
    rest = decoding.removeprefix(f"{Isolation.UNCOMMITTED}\n")
    return (
        Isolation.COMMITTED if rest == decoding else Isolation.UNCOMMITTED,
        rest,
    )
