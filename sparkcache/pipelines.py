"""pyspark's declarative pipelines, with their flows as planned consumers.

It is enough that one file of definitions imports this module; it then holds for the
whole pipeline, SQL files included:

    from sparkcache import pipelines as dp

The decorators are pyspark's own. When a run starts, each scan of a topic in the flows
that it refreshes becomes a planned consumer; the plan ends with the last such flow.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache.source.planning.flows import under_plan
from sparkcache.source.spark_version import require_spark

require_spark("4.1", "sparkcache.pipelines")

try:
    import_module("grpc")  # without it, pyspark.sql.connect ends the interpreter
    from pyspark import pipelines
    from pyspark.pipelines import *  # noqa: F403 - the names depend on the version
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


# pyspark has no hook between the last flow's definition and the start of a run.
SparkConnectClient.execute_command_as_iterator = _execute_planned  # type: ignore[method-assign, assignment]
