"""pyspark's declarative pipelines, whose flows are planned consumers.

One file of definitions that imports this is enough for all of its pipeline, SQL files
included:

    from sparkcache import pipelines as dp

The decorators are pyspark's own. When a run is started, each scan of a topic in the
flows that it will refresh is counted; the plan ends with the last of these flows.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache.source.planning.flows import under_plan
from sparkcache.source.spark_version import require_spark

require_spark("4.1", "sparkcache.pipelines")

try:
    from pyspark import pipelines
    from pyspark.pipelines import *  # noqa: F403 - its names depend on the version
    from pyspark.sql.connect.client import SparkConnectClient
except ImportError as error:
    raise ConfigError(
        f"sparkcache.pipelines needs pip install 'sparkcache[pipelines]': {error}"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql.connect.observation import Observation
    from pyspark.sql.connect.proto import Command

__all__ = pipelines.__all__

_execute = SparkConnectClient.execute_command_as_iterator


@wraps(_execute)
def _execute_planned(
    client: SparkConnectClient,
    command: Command,
    observations: dict[str, Observation] | None = None,
) -> Iterator[dict[str, Any]]:
    events = _execute(client, command, observations)
    run = command.pipeline_command.start_run
    if not run.dataflow_graph_id or run.dry:
        return events
    return under_plan(events, client, run)


# pyspark has no hook between the last flow's definition and the start of the run.
SparkConnectClient.execute_command_as_iterator = _execute_planned  # type: ignore[method-assign, assignment]
