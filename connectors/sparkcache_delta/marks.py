"""How far a stream has come in a table: so many files of a version.

As JSON, in checkpoints and in the progress of a query:

    {"table": "f1e61c26-...", "version": 7, "files": 2}
    {"table": "f1e61c26-...", "version": 5, "files": 40, "snapshot": true}

The first has read all that was added before version 7, and two of the files that this
has added. The second is still with the files that version 5 had, from which it goes on
to what version 6 has added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from sparkcache.connector import Mark


@dataclass(frozen=True, slots=True)
class TableMark:
    """A place in a table's log.

    Attributes:
        table: The table's id: another one may come to lie in its place.
        version: The version that is being read.
        files: How many of its files were read, in order.
        is_snapshot: Whether all files that it has are meant, not those it has added.

    """

    table: str
    version: int
    files: int = 0
    is_snapshot: bool = False

    @classmethod
    def parse(cls, mark: Mark) -> TableMark:
        """Read what `written` wrote; raises ConfigError."""
        try:
            return cls(
                str(mark["table"]),
                int(mark["version"]),
                int(mark["files"]),
                bool(mark.get("snapshot", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint has the offset {mark!r}, which is none of a table: "
                "give another checkpointLocation"
            ) from error

    def written(self) -> Mark:
        """Return it as it stands in JSON."""
        found: dict[str, int | str | bool] = {
            "table": self.table,
            "version": self.version,
            "files": self.files,
        }
        return found | {"snapshot": True} if self.is_snapshot else found

    def behind(self) -> TableMark:
        """Return the mark behind its version."""
        return TableMark(self.table, self.version + 1)

    def past(self, files: int) -> TableMark:
        """Return the mark behind so many of its version's files."""
        return replace(self, files=files)
