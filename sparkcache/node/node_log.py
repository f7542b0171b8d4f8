"""The log of a node and its loaders: one file that all of them append to."""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 8 << 20

_log = logging.getLogger(__name__)


def limit_log(log: Path, max_bytes: int = _MAX_BYTES) -> None:
    """Move what a log contains to `<name>.1`, if it is larger than allowed.

    The file itself stays, so that all who append to it go on at its beginning. What is
    written between the two steps is lost, and all of it if there is no room for a copy.
    """
    try:
        if log.stat().st_size <= max_bytes:
            return
        older = log.with_name(f"{log.name}.1")
        try:
            shutil.copyfile(log, older)
        finally:
            os.truncate(log, 0)
        _log.info("earlier lines are in %s", older)
    except OSError as error:
        _log.warning("the log could not be moved: %s", error)
