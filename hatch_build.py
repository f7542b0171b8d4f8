"""Build hook that adds the jars for Spark's JVM to the wheel, if a JDK is found."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface[Any]):
    """Compiles the jars. An editable install compiles them on first use instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the jars outside of the source tree and add them to the wheel."""
        if version == "editable":
            return
        jvm = Path(self.root, "sparkcache", "jvm")
        self._directory = tempfile.TemporaryDirectory()
        builders = runpy.run_path(str(jvm / "jar.py"))
        for name, build in (
            ("sparkcache.jar", builders["build"]),
            ("sparkcache_reader.jar", builders["build_reader"]),
        ):
            jar = Path(self._directory.name, name)
            try:
                build(jar)
            except FileNotFoundError as error:
                self.app.display_warning(f"the wheel has no {name}: {error}")
                return
            build_data["force_include"][str(jar)] = f"sparkcache/jvm/{name}"

    def finalize(
        self,
        version: str,
        build_data: dict[str, Any],
        artifact_path: str,
    ) -> None:
        """Remove the temporary directory."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()
