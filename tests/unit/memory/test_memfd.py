"""Files in memory, whatever the kernel's settings for them."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkcache.connector import DecodedRun
from sparkcache.memory.encoded import EncodedRun
from sparkcache.memory.sealed import map_run, seal
from sparkcache.memory.segment import MappedSegments
from sparkcache.memory.segments import Segments
from sparkcache.model import Segment
from tests.seccomp import MEMFD_CREATE, deny, needs_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

MFD_NOEXEC_SEAL = 0x8
F_SEAL_EXEC = 0x20
RUN = DecodedRun([pa.record_batch({"id": pa.array(range(500))})])
CREATE = """
import os
from sparkcache.memory.memfd import create_memfd
print(os.readlink(f"/proc/self/fd/{create_memfd()}"))
"""


@pytest.fixture
def noexec() -> Iterator[int]:
    """A file with the seal that the kernel adds where `vm.memfd_noexec` is set."""
    try:
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL)
    except OSError:
        pytest.skip("this kernel has no such seal")
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == F_SEAL_EXEC
    yield fd
    os.close(fd)


def copy_seals(source: int, target: int) -> None:
    fcntl.fcntl(target, fcntl.F_ADD_SEALS, fcntl.fcntl(source, fcntl.F_GET_SEALS))


def test_a_run_may_have_seals_of_the_kernel(noexec: int) -> None:
    encoded = EncodedRun(RUN, RUN.batches[0].schema)
    fd = seal(encoded, encoded.size_bytes)
    os.write(noexec, os.pread(fd, encoded.size_bytes, 0))
    copy_seals(fd, noexec)
    os.close(fd)
    found = map_run(noexec, encoded.size_bytes, lambda: None)
    assert found.batches == RUN.batches


def test_a_segment_may_have_seals_of_the_kernel(noexec: int) -> None:
    segments, segment = Segments(), Segment(0, 4096)
    segments.create(segment)
    fd = segments.to_read(segment, segments)
    assert fd is not None
    os.ftruncate(noexec, segment.size_bytes)
    copy_seals(fd, noexec)
    segments.close()
    MappedSegments().add(segment.number, noexec)


@needs_numbers
@pytest.mark.parametrize(
    ("error", "flag", "said"),
    [
        pytest.param(errno.EINVAL, MFD_NOEXEC_SEAL, "/memfd:sparkcache", id="old"),
        pytest.param(errno.EPERM, 0, "Operation not permitted", id="denied"),
    ],
)
def test_a_kernel_may_lack_the_flag_or_the_call(
    error: int, flag: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CREATE],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        preexec_fn=lambda: deny(MEMFD_CREATE, error, flag=flag),
    )
    assert said in done.stdout + done.stderr
