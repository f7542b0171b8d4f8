"""Filter messages by tags, as RocketMQ's consumers subscribe to them.

The filter runs after the cache, so scans for different tags share the held runs.

Source: FilterAPI.buildSubscriptionData of Apache RocketMQ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkcache import connector as connectors
from sparkcache.errors import ConfigError
from sparkcache_rocketmq.columns import TAGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.connector import DecodedRun
    from sparkcache.model import RunKey

OPTION = "tags"
_ALL, _OR = "*", "||"


def wanted(options: Mapping[str, str]) -> frozenset[str] | None:
    """Return the tags that the option names; None for all messages, tagged or not."""
    text = options.get(OPTION, _ALL).strip()
    if text == _ALL:
        return None
    tags = frozenset(tag.strip() for tag in text.split(_OR)) - {""}
    if not tags or _ALL in tags:
        raise ConfigError(
            f"option {OPTION}={text!r}: expected tags such as 'TagA || TagB', or '*'"
        )
    return tags


class Resolver(connectors.Resolver):
    """Drops the rows whose tags are not wanted; see `connector.Resolver`."""

    def __init__(self, tags: frozenset[str] | None) -> None:
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())

    def __repr__(self) -> str:
        return f"Resolver({self._tags if self._tags is None else len(self._tags)})"

    def resolve(self, key: RunKey, run: DecodedRun) -> DecodedRun:  # noqa: ARG002
        """Return the rows of a run that have wanted tags."""
        if self._tags is None:
            return run
        are_wanted = (pc.is_in(batch.column(TAGS), self._tags) for batch in run.batches)
        rows = [
            batch.filter(mask)
            for batch, mask in zip(run.batches, are_wanted, strict=True)
        ]
        return replace(run, batches=[batch for batch in rows if len(batch)])
