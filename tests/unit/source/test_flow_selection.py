"""The flows that a run of a pipeline refreshes, and runs with a remote server."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.proto import PipelineCommand

from sparkcache.source.planning.flows import is_refreshed, under_plan


@pytest.mark.parametrize(
    ("full", "refresh", "expected"),
    [
        pytest.param([], [], True, id="all of them"),
        pytest.param([], ["orders"], True, id="by its name"),
        pytest.param([], ["Orders"], True, id="in any case"),
        pytest.param(["shop.orders"], [], True, id="by schema and name"),
        pytest.param([], ["spark_catalog.shop.`orders`"], True, id="by all of it"),
        pytest.param(["other"], ["orders"], True, id="one or the other"),
        pytest.param([], ["other"], False, id="another one"),
        pytest.param([], ["ders"], False, id="the end of its name"),
        pytest.param([], ["eu.orders"], False, id="of another schema"),
    ],
)
def test_selections(full: list[str], refresh: list[str], expected: bool) -> None:
    run = PipelineCommand.StartRun(
        full_refresh_selection=full, refresh_selection=refresh
    )
    assert is_refreshed("spark_catalog.shop.orders", run) is expected


def test_a_server_in_another_process_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = SparkConnectClient("sc://localhost:1")
    run = PipelineCommand.StartRun(dataflow_graph_id="any")
    events: list[dict[str, Any]] = [{"pipeline_command_result": None}]
    assert list(under_plan(iter(events), client, run)) == events
    assert "flows are not planned" in caplog.text
    client.close()
