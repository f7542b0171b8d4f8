"""Puts the jar of the Spark plugin into the wheel, if there is a JDK to make it."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface[Any]):
    """Compiles the plugin. An editable install builds it when it is first wanted."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the jar, which is built outside of the sources."""
        if version == "editable":
            return
        ui = Path(self.root, "sparkcache", "ui")
        self._directory = tempfile.TemporaryDirectory()
        jar = Path(self._directory.name, "sparkcache.jar")
        try:
            runpy.run_path(str(ui / "jar.py"))["build"](jar)
        except FileNotFoundError as error:
            self.app.display_warning(f"no tab in Spark's UI: {error}")
            return
        build_data["force_include"][str(jar)] = "sparkcache/ui/sparkcache.jar"

    def finalize(
        self,
        version: str,
        build_data: dict[str, Any],
        artifact_path: str,
    ) -> None:
        """Leave nothing behind."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()
