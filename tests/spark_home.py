"""A home of Spark from which Python processes begin sooner.

Spark has them import a zip of pyspark, which each of them compiles anew. Without that
zip they import the same modules as pip has compiled them: 0.5 s of a core instead of
1.3 s, for every worker and every planner that a test needs.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def link(directory: Path) -> None:
    """Fill an empty directory with links to what is installed, but for the zip."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for path in Path(spec.origin).parent.iterdir():
        if path.name not in ("python", "work"):
            (directory / path.name).symlink_to(path)
