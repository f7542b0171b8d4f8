"""`examples/notebook.ipynb`, run by Jupyter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def code(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def printed(cell: dict[str, Any], name: str) -> str:
    """Return what a cell has written to one of its streams."""
    outputs = (out for out in cell["outputs"] if out["output_type"] == "stream")
    return "".join("".join(out["text"]) for out in outputs if out["name"] == name)


def columns(cell: dict[str, Any]) -> dict[str, list[str]]:
    """Return the table that a cell ends with: the texts below each name."""
    results = (out for out in cell["outputs"] if out["output_type"] == "execute_result")
    (result,) = results
    rows = re.findall(r"<tr.*?</tr>", "".join(result["data"]["text/html"]), re.DOTALL)
    names, *others = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows)
    filled = [row for row in others if any(row[1:])]  # not what names the index
    return {name: [row[at] for row in filled] for at, name in enumerate(names)}


def test_it_is_kept_without_outputs() -> None:
    for cell in code(NOTEBOOK):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.spark
def test_notebook(tmp_path: Path) -> None:
    done = tmp_path / "done.ipynb"
    command = [sys.executable, "-m", "jupyter", "execute", f"--output={done}"]
    command.append(str(NOTEBOOK))
    of_its_own = {"IPYTHONDIR": tmp_path, "JUPYTER_RUNTIME_DIR": tmp_path / "runtime"}
    ran = subprocess.run(
        command,
        env=os.environ | of_its_own,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    topic, _, look, without, planned, saved, stats, counted, _ = code(done)
    orders, _ = printed(topic, "stdout").split(maxsplit=1)
    messages = int(orders.replace(",", ""))
    assert messages > 10_000
    assert "Reading indexes" in printed(look, "stderr")  # the progress bar
    assert columns(look)["__batchIndex"] == ["0", "1", "2"]
    for way in without, planned:
        assert columns(way)["orders read"] == [str(messages)] * 3
    assert columns(without)["GETs"] == ["32"] * 3
    assert columns(planned)["GETs"] == ["32", "0", "0"]
    assert columns(planned)["MiB from S3"][1:] == ["0.00", "0.00"]
    assert columns(saved)["GETs"] == ["96", "32"]
    assert columns(stats)["saved_gets"] == ["64"]
    assert columns(counted)["requests"] == ["96"]
    assert columns(counted)["evicted_by_last_read"] == ["32"]
    assert columns(counted)["runs"] == ["0"]
