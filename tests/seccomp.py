"""System calls that the kernel denies to this process and all that it starts."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

import pytest

PIDFD_OPEN = 434
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}.get(platform.machine(), -1)
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), -1)

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _SECOND_ARGUMENT = 0, 24  # offsets in struct seccomp_data

needs_numbers = pytest.mark.skipif(
    MEMFD_CREATE < 0, reason="the numbers of system calls are not known here"
)


def deny(call: int, error: int = errno.EPERM, *, flag: int = 0) -> None:
    """Have a system call fail, or only if its second argument has a flag.

    It cannot be undone.
    """
    program = [(_LOAD, 0, 0, _NUMBER), (_JUMP_IF_EQUAL, 0, 3 if flag else 1, call)]
    if flag:
        program += [(_LOAD, 0, 0, _SECOND_ARGUMENT), (_JUMP_IF_ANY_BIT, 0, 1, flag)]
    program += [(_RETURN, 0, 0, _ERRNO | error), (_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    )
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
