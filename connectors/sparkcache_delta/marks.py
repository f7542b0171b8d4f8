"""How far a stream has read a table: the number of files read of a version.

Its JSON form, in checkpoints and in the progress of a query:

    {"table": "f1e61c26-...", "version": 7, "files": 2}
    {"table": "f1e61c26-...", "version": 5, "files": 40, "snapshot": true}

The first stream has read all files added before version 7, and two of the files that
version 7 added. The second is still reading all files of version 5, and continues with
the files that version 6 added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from sparkcache.connector import Mark


@dataclass(frozen=True, slots=True)
class TableMark:
    """A mark in a table's log.

    Attributes:
        table: The table's id, since another table may replace it at the same URI.
        version: The version that is being read.
        files: How many of its files were read, in order.
        is_snapshot: Whether all files of the version are read, or only those it added.

    """

    table: str
    version: int
    files: int = 0
    is_snapshot: bool = False

    @classmethod
    def parse(cls, mark: Mark) -> TableMark:
        """Parse the output of `to_json`; raises ConfigError."""
        try:
            return cls(
                str(mark["table"]),
                int(mark["version"]),
                int(mark["files"]),
                bool(mark.get("snapshot", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint has the offset {mark!r}, which is not an offset of a "
                "table: use another checkpointLocation"
            ) from error

    def to_json(self) -> Mark:
        """Return the mark in its JSON form."""
        mark: dict[str, int | str | bool] = {
            "table": self.table,
            "version": self.version,
            "files": self.files,
        }
        return mark | {"snapshot": True} if self.is_snapshot else mark

    def after_version(self) -> TableMark:
        """Return the mark after all of this version."""
        return TableMark(self.table, self.version + 1)

    def after_files(self, files: int) -> TableMark:
        """Return the mark after that many files of this version."""
        return replace(self, files=files)
