"""Anonymous files in memory, created so that every kernel setting allows them."""

from __future__ import annotations

import errno
import fcntl
import os

_FLAGS = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
_MFD_NOEXEC_SEAL = 0x8  # since Linux 6.3; `vm.memfd_noexec=2` may require it


def create_memfd() -> int:
    """Create an empty file that can be sealed; return its descriptor.

    Raises OSError.
    """
    try:
        return os.memfd_create("sparkcache", _FLAGS | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("sparkcache", _FLAGS)  # an older kernel


def has_seals(fd: int, seals: int) -> bool:
    """Return whether a file has these seals; the kernel may have added others.

    Raises OSError if it is not such a file.
    """
    return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & seals == seals
