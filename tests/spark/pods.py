"""Pods: containers without a container engine, one for each executor.

A pod is an executor in process, mount and user namespaces of its own. A worker of a
standalone cluster starts it where Kubernetes would: `java` in a `JAVA_HOME` is a
program that makes the pod, and runs the real Java in it. Inside,

- the user has a number as OpenShift assigns them, the group 0, no capability, a line
  in the file of users, as the image of Spark adds it, and no home that it can write to
- the root file system is read-only, but for the working directory and `LOCAL_DIRS`
- `/dev/shm` is small, or cannot be used at all

What a pod has written lies in a file system in memory, which ends with it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.applications import ROOT

USER = 1000730000
LOCAL_DIRS = "/mnt/data/spark-7f3a5d52-6d0e-4c8e-9d2a-1f6f0f0b8a11"
"""Where Kubernetes mounts `emptyDir`, but for the first part."""

_SCRIPT = r"""#!/bin/sh
# Makes the pod, as root of its user namespace, and becomes the user. Then runs Java.
set -e
if [ "$1" != in-the-pod ]; then
  exec unshare --user --map-root-user --mount --pid --fork --kill-child \
    "$0" in-the-pod "$@"
fi
shift
work=$PWD

mount -t tmpfs -o mode=755 emptydir /mnt
mkdir -p @LOCAL_DIRS@ /mnt/tmp /mnt/etc
echo "spark:x:@USER@:0::/opt/spark:/bin/false" > /mnt/etc/passwd
mount --bind /mnt/etc/passwd /etc/passwd
mount -t tmpfs -o @SHM@ shm /dev/shm
mount -t proc -o @PROC@ proc /proc

# What the image has lies below /tmp where the tests do.
for path in @KEPT@ "$work"; do
  case $path in
    /tmp/*) mkdir -p "/mnt$path"; mount --bind "$path" "/mnt$path" ;;
  esac
done
mount --rbind /mnt/tmp /tmp
@TMP@
mount --bind "$work" "$work"
mount -o remount,bind,ro /
cd "$work"

unset SPARK_EXECUTOR_DIRS TMPDIR
export SPARK_LOCAL_DIRS=@LOCAL_DIRS@ HOME=/ JAVA_HOME=@JAVA_HOME@
@EXEC@ unshare --user --map-user=@USER@ --map-group=0 "$JAVA_HOME/bin/java" "$@"
exit $?
"""


@dataclass(frozen=True)
class Pods:
    """A kind of pods.

    Attributes:
        shm: Options of the file system at `/dev/shm`.
        proc: Options of the file system at `/proc`.
        has_tmp: Whether `/tmp` can be written to.
        has_init: Whether the first process is one that reaps orphans, as `tini` in the
            image of Spark does; else it is the JVM of the executor.

    """

    shm: str
    proc: str
    has_tmp: bool
    has_init: bool

    def java_home(self, directory: Path) -> Path:
        """Make a `JAVA_HOME` whose `java` runs in such a pod; skip if it cannot."""
        home = directory / "java"
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(self._script())
        program.chmod(0o755)
        try:
            subprocess.run([program, "-version"], check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no pod can be made here: {error.stderr.decode().strip()}")
        return home

    def _script(self) -> str:
        java = shutil.which("java")
        assert java is not None
        kept = {ROOT, sys.prefix, sys.base_prefix, os.environ["SPARK_HOME"]}
        values = {
            "USER": USER,
            "LOCAL_DIRS": LOCAL_DIRS,
            "SHM": self.shm,
            "PROC": self.proc,
            "KEPT": shlex.join(map(str, kept)),
            "TMP": "" if self.has_tmp else "mount -o remount,bind,ro /tmp",
            "JAVA_HOME": Path(java).resolve().parents[1],
            "EXEC": "" if self.has_init else "exec",
        }
        script = _SCRIPT
        for name, value in values.items():
            script = script.replace(f"@{name}@", str(value))
        return script
