"""How many loaders a node has, and how much memory they may hold."""

from __future__ import annotations

import logging
import math
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparkcache.node import cgroup
from sparkcache.units import format_bytes

if TYPE_CHECKING:
    from sparkcache.config import NodeConfig

_MOST = 8
_SHARE_BYTES = 256 << 20
# Python, Arrow, boto3 and a connector take 45 to 80 MiB, and glibc keeps up to 64 MiB.
_LEAST_SHARE_BYTES = 192 << 20

_LOCAL_MASTER = re.compile(r"(?:spark\.master=)?local(?:\[(\d+)(?:,\s*\d+)?\])?")

_log = logging.getLogger(__name__)


class LoaderLimits(NamedTuple):
    """How many loaders there may be, and how many bytes each of them may keep."""

    most: int
    share_bytes: int

    @property
    def size_bytes(self) -> int:
        """How many bytes all of them may keep."""
        return self.most * self.share_bytes


def loader_limits(config: NodeConfig, cores: int) -> LoaderLimits:
    """Return the limits for the loaders of a node.

    Args:
        config: The node's settings.
        cores: How many cores the node may use.

    """
    total_bytes = config.loader_memory_bytes
    most = config.loaders or min(cores, _MOST)
    if total_bytes and not config.loaders:
        most = max(1, min(most, total_bytes // _LEAST_SHARE_BYTES))
    return LoaderLimits(most, total_bytes // most if total_bytes else _SHARE_BYTES)


def usable_cores(executor_pid: int) -> int:
    """Return how many cores a node may use: its executor's, if that is known.

    Not more than the CPUs that this process may run on, and the quota of its control
    groups, rounded up.
    """
    limits = [len(os.sched_getaffinity(0))]
    quota = cgroup.cpu_limit()
    if quota is not None:
        limits.append(max(1, math.ceil(quota)))
    cores = executor_cores(Path(f"/proc/{executor_pid}/cmdline"))
    if cores is not None:
        limits.append(cores)
    return min(limits)


def executor_cores(command_line: Path) -> int | None:
    """Return the cores of the executor that a JVM runs; None if it does not tell.

    Every cluster manager starts executors with `--cores N`. In local mode, the JVM was
    started with its master, unless the program sets it later.
    """
    try:
        words = command_line.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    is_executor = any(word.endswith("ExecutorBackend") for word in words)
    for option, value in pairwise(words):
        if is_executor and option == "--cores" and value.isdecimal():
            return max(1, int(value))
        if not is_executor and option in ("--master", "--conf"):
            found = _LOCAL_MASTER.fullmatch(value)
            if found:
                return max(1, int(found[1] or 1))
    return None


def warn_if_too_large(config: NodeConfig, cores: int) -> None:
    """Log a warning if the cache and its loaders may exceed the memory that there is.

    The kernel would end processes of the executor then.

    Args:
        config: The node's settings.
        cores: How many cores the node may use.

    """
    limit_bytes = cgroup.memory_limit()
    limits = loader_limits(config, cores)
    if limit_bytes is None or config.max_bytes + limits.size_bytes <= limit_bytes:
        return
    _log.warning(
        "maxBytes=%s and %d loaders of up to %s each are more than the %s of memory "
        "that this container may use; set a smaller maxBytes or loaderMemoryBytes, or "
        "give the container more",
        format_bytes(config.max_bytes),
        limits.most,
        format_bytes(limits.share_bytes),
        format_bytes(limit_bytes),
    )


def private_bytes(pid: int) -> int:
    """Return the anonymous memory of a process; 0 if it has ended.

    Pages that it still shares with the process that forked it are included.
    """
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
