"""A load that a task does for itself, as its node lays it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkcache.fetch.scan import Scan


@dataclass(frozen=True, slots=True)
class DirectLoad:
    """Consecutive runs of one slice that a task loads itself, with one request.

    Attributes:
        run_slice: The index of the slice in the scan.
        first: The index of the first run to read, among the runs of the slice.
        stop: The index after the last run to read.
        begin: The index of the run where the request begins, `first` or less.
        end: The index after the last run that is requested.
        offset: Where the request begins in the object.
        end_offset: Where it ends.

    """

    run_slice: int
    first: int
    stop: int
    begin: int
    end: int
    offset: int
    end_offset: int

    def is_within(self, scan: Scan) -> bool:
        """Return whether it is a load of runs that a scan reads."""
        if not 0 <= self.run_slice < len(scan.slices):
            return False
        part = scan.slices[self.run_slice]
        extent = part.extent
        return (
            part.start <= self.first < self.stop <= part.stop
            and 0 <= self.begin <= self.first
            and self.stop <= self.end <= len(part.runs)
            and extent.offset <= self.offset < self.end_offset
            and self.end_offset <= extent.offset + extent.size_bytes
        )
