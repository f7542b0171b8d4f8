"""A headless Chromium, driven through the WebDriver protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_S = 30.0
_ROWS = """
return Array.from(document.querySelectorAll("#" + arguments[0] + " tbody tr"),
                  row => Array.from(row.cells, cell => cell.textContent))
"""
_OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1400,1000",
]


class Browser:
    """One window. Its processes end with the `with` block."""

    def __init__(self, directory: Path) -> None:
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=directory,
        )
        assert self._driver.stdout is not None
        line = next(line for line in self._driver.stdout if "successfully on" in line)
        port = int(line.rstrip(".\n").split()[-1])
        self._url = f"http://127.0.0.1:{port}/session"
        options = {
            "binary": shutil.which("chromium"),
            "args": [*_OPTIONS, f"--user-data-dir={directory}"],
        }
        session = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self._url += "/" + self._call("", session)["sessionId"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call("", method="DELETE")
        self._driver.terminate()
        self._driver.communicate()

    def open(self, url: str) -> None:
        self._call("/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        return self._call("/execute/sync", {"script": script, "args": list(arguments)})

    def rows(self, table: str) -> list[list[str]]:
        """Return the texts in the cells of a table, row by row."""
        rows: list[list[str]] = self.run(_ROWS, table)
        return rows

    def text(self, id_: str) -> str:
        script = "return document.getElementById(arguments[0]).textContent"
        text: str = self.run(script, id_)
        return text

    def until(self, script: str) -> Any:
        """Wait until a script returns a true value; return the value."""
        end_s = time.monotonic() + DEADLINE_S
        while not (value := self.run("return " + script)):
            assert time.monotonic() < end_s, (
                f"still false after {DEADLINE_S} s: {script}"
            )
            time.sleep(0.05)
        return value

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        height = self.run("return document.documentElement.scrollHeight")
        self._call("/window/rect", {"width": 1400, "height": height + 150})
        path.write_bytes(base64.b64decode(self._call("/screenshot", method="GET")))

    def _call(self, path: str, body: object = None, method: str = "POST") -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self._url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
            return json.load(reply)["value"]
