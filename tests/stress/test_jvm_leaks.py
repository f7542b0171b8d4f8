"""The reader in the JVM leaks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.needs import SPARK_4_1
from tests.stress import jvm_leaks

if TYPE_CHECKING:
    from pathlib import Path


@SPARK_4_1
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("jdk")
def test_many_tasks_leak_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_LOCAL_DIRS", "PYSPARK_PYTHON"):  # restored at the end
        monkeypatch.setenv(name, "")
    found = jvm_leaks.measured(tmp_path, 3000)
    assert found["tasks"]["killed"] > 0
    assert found["tasks"]["failed"] > 0
    assert found["mapped"]["last"] == found["pinned"]["last"] == 0
    assert found["unmapped_s"]["max"] < 30
