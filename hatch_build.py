"""Build hook that adds the jar of the Spark plugin to the wheel, if a JDK is found."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface[Any]):
    """Compiles the plugin. An editable install compiles it on first use instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the jar outside of the source tree and add it to the wheel."""
        if version == "editable":
            return
        ui = Path(self.root, "sparkcache", "ui")
        self._directory = tempfile.TemporaryDirectory()
        jar = Path(self._directory.name, "sparkcache.jar")
        try:
            runpy.run_path(str(ui / "jar.py"))["build"](jar)
        except FileNotFoundError as error:
            self.app.display_warning(f"the wheel has no tab for Spark's UI: {error}")
            return
        build_data["force_include"][str(jar)] = "sparkcache/ui/sparkcache.jar"

    def finalize(
        self,
        version: str,
        build_data: dict[str, Any],
        artifact_path: str,
    ) -> None:
        """Remove the temporary directory."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()
