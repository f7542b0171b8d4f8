"""What Spark ships with a task: the settings, plans and identity of its session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from sparkcache.config import CONF_PREFIX, DECIDES_CONF, PLANS_CONF, CacheConfig
from sparkcache.demand import Plan
from sparkcache.homes import Place
from sparkcache.model import ReadToken

if TYPE_CHECKING:
    from collections.abc import Mapping

_JOB_GROUP = "spark.jobGroup.id"  # the run's id, if a query has set it
_QUERY_ID = "sql.streaming.queryId"
_EXECUTION_ID = "spark.sql.execution.id"
_PLACE = "sparkcache.place"  # set by the JVM

PROPERTIES = (
    *CacheConfig().to_conf(),
    PLANS_CONF,
    DECIDES_CONF,
    _JOB_GROUP,
    _QUERY_ID,
    _EXECUTION_ID,
    _PLACE,
)
"""The local properties of a task that count."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Identity of a task, and the settings and plans in force for it.

    Attributes:
        token: Identity of the planned read.
        epoch: Grows with every stage of the application; -1, older than any, in a
            job without the session's conf, such as `df.rdd.count()`.
        config: The settings in force, without the options of the scan.
        plans: The active plans.
        run: Run id of the task's streaming query; empty if it has none.
        query: Id of that query, the same in all its runs.
        authority: How much its settings count for the node: 2 in the session that was
            installed first, 1 in a streaming query of it, which has the session's
            settings of when it was started, and 0 elsewhere.
        place: Whether its executor is the home of what it reads.

    """

    token: ReadToken
    epoch: int
    config: CacheConfig
    plans: tuple[Plan, ...]
    run: str = ""
    query: str = ""
    authority: int = 0
    place: Place = Place.ANYWHERE

    @classmethod
    def of(
        cls,
        properties: Mapping[str, str],
        token: ReadToken,
        base: CacheConfig | None,
    ) -> TaskSettings:
        """Return what the local properties of a task say. Raises ConfigError.

        Args:
            properties: Those of `PROPERTIES` that the task has.
            token: Identity of the planned read.
            base: The configuration that `sparkcache.install` shipped, if any.

        """
        conf = {
            key: value
            for key, value in properties.items()
            if key.startswith(CONF_PREFIX)
        }
        query = properties.get(_QUERY_ID, "")
        return cls(
            token,
            token.stage
            if _EXECUTION_ID in properties
            else -1,  # the node keeps its own
            CacheConfig.resolve(conf=conf, base=base),
            decode_plans(properties.get(PLANS_CONF)),
            properties.get(_JOB_GROUP, ""),
            query,
            _authority(properties, is_stream=bool(query)),
            Place(properties.get(_PLACE, "")),
        )

    def plans_of(self, stream: Plan | None) -> tuple[Plan, ...]:
        """Return the plans that a task reads under.

        A stream has only its own plan: its query keeps the session's conf from when it
        was started, and its reads are not among those planned at that time.
        """
        if stream is None:
            return self.plans
        return (replace(stream, id=f"{self.run}/{self.query}/{stream.id}"),)


def encode_plans(plans: tuple[Plan, ...]) -> str:
    """Encode plans as the value of a conf."""
    return msgspec.json.encode(plans).decode()


def decode_plans(text: str | None) -> tuple[Plan, ...]:
    """Decode plans from the value of a conf."""
    return msgspec.json.decode(text, type=tuple[Plan, ...]) if text else ()


def _authority(properties: Mapping[str, str], *, is_stream: bool) -> int:
    if properties.get(DECIDES_CONF) != "true":
        return 0
    return 1 if is_stream else 2
