"""The node process: `python -m sparkcache.node EXECUTOR_DIR EXECUTOR_PID CONFIG`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import msgspec

from sparkcache.config import NodeConfig
from sparkcache.node.address import Address
from sparkcache.node.server import serve


def main() -> None:
    """Begin to listen, then serve in the background."""
    executor_dir, executor_pid, config = sys.argv[1:]
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s",
    )
    serve(
        Address(Path(executor_dir)),
        msgspec.json.decode(config, type=NodeConfig),
        int(executor_pid),
    )


if __name__ == "__main__":
    main()
