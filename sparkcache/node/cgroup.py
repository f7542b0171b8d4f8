"""What the control groups of this process allow: processor time and memory.

A group is limited by its ancestors, too. Both versions of control groups are read, as
they are mounted here; in a container the mounted directory may be the group itself.
Source: the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SELF = Path("/proc/self")
_UNLIMITED_BYTES = 1 << 60  # version 1 shows the largest whole number of pages


def cpu_limit(proc: Path = _SELF) -> float | None:
    """Return how many CPUs may be used at a time, on average; None if any number."""
    limits = []
    for group in _groups(proc, "cpu"):
        if (text := _read(group / "cpu.max")) is not None:
            quota, _, period = text.partition(" ")
        else:
            quota = _read(group / "cpu.cfs_quota_us") or "-1"
            period = _read(group / "cpu.cfs_period_us") or ""
        if quota.isdecimal() and period.isdecimal() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory_limit(proc: Path = _SELF) -> int | None:
    """Return how many bytes of memory may be used; None if there is no limit."""
    limits = []
    for group in _groups(proc, "memory"):
        text = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
        if text is not None and text.isdecimal():
            limits.append(int(text))
    least = min(limits, default=_UNLIMITED_BYTES)
    return least if least < _UNLIMITED_BYTES else None


def _groups(proc: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of a process's groups that a controller may limit."""
    paths = _paths(proc)
    for line in (_read(proc / "mountinfo") or "").splitlines():
        fields, _, source = line.partition(" - ")
        root, mount_point = map(_unescaped, fields.split(" ")[3:5])
        kind, _, options = source.split(" ")[:3]
        if kind == "cgroup2":
            path = paths.get("")
        elif kind == "cgroup" and controller in options.split(","):
            path = paths.get(controller)
        else:
            continue
        yield from _and_ancestors(Path(mount_point), path, root)


def _paths(proc: Path) -> dict[str, str]:
    """Return the path of a process's group by controller; "" is version 2."""
    paths = {}
    for line in (_read(proc / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _and_ancestors(mount_point: Path, path: str | None, root: str) -> Iterator[Path]:
    """Yield the directory of a group, and those above it that are mounted."""
    group, pure = mount_point, PurePosixPath(path or "..")
    if ".." not in pure.parts and pure.is_relative_to(root):  # else it is not in view
        group = mount_point / pure.relative_to(root)
    while group != mount_point:
        yield group
        group = group.parent
    yield mount_point


def _unescaped(text: str) -> str:
    return text.replace("\\040", " ").replace("\\134", "\\")


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
