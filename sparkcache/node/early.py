"""Starts an executor's node before its first task does.

    python -m sparkcache.node.early EXECUTOR_DIR EXECUTOR_PID PROTOCOL [KEY=VALUE...]

The plugin in the executor's JVM runs it, with the settings in Spark's conf. The node
takes over those of the first task in any case. Nothing is lost if it fails: then the
first task starts the node.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from sparkcache.config import CacheConfig
from sparkcache.errors import CacheUnavailable, ConfigError
from sparkcache.node.address import Address
from sparkcache.node.launch import ensure_started
from sparkcache.node.messages import PROTOCOL_VERSION


def main() -> None:
    """Start the node unless there is one; exit with the reason if that fails."""
    executor_dir, executor_pid, protocol, *settings = sys.argv[1:]
    if protocol != str(PROTOCOL_VERSION):
        sys.exit(f"protocol version {PROTOCOL_VERSION}, expected {protocol}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        pairs = (setting.partition("=") for setting in settings)
        config = CacheConfig.resolve(conf={key: value for key, _, value in pairs})
        if config.enabled:
            ensure_started(Address(Path(executor_dir)), config, int(executor_pid))
    except (CacheUnavailable, ConfigError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
