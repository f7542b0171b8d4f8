"""What a peer sends that keeps no rule: bytes, frames and descriptors at random.

A case is a number. The same case sends the same bytes and kinds of descriptors.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sparkcache.node.messages import Message

HEADER = struct.Struct("<IB")
MOST_BYTES = 16 << 20
MOST_DESCRIPTORS = 16

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1),
    *(float("nan"), 1e308, "", "x" * 1000, "\0", b"", b"\xff", [], {}, [[]]),
)
# The epoch, the settings and the authority of a PackedOpen: they change a node for all
# of its tasks, as any task may.
KEPT = {"PackedOpen": {8, 9, 13}}


class Piece(NamedTuple):
    """What is sent at once.

    Attributes:
        data: The bytes.
        kinds: The kinds of the attached descriptors.
        breaks: Whether the other side has to close the connection for it.

    """

    data: bytes
    kinds: tuple[str, ...] = ()
    breaks: bool = False


def frame(payload: bytes, descriptors: int = 0) -> bytes:
    """A frame with a header that is true, unless `descriptors` is not."""
    return HEADER.pack(len(payload), descriptors) + payload


def frame_of(message: Message, descriptors: int = 0) -> bytes:
    """The frame of a message."""
    return frame(msgspec.msgpack.encode(message), descriptors)


def conversation(
    pick: random.Random, own: Sequence[Message], foreign: Sequence[Message]
) -> Iterator[Piece]:
    """Yield what the other side should accept, with something else in its place once.

    Args:
        pick: The source of chance.
        own: Messages of this direction without descriptors, in an order that is right.
        foreign: Messages that are not of this direction.

    """
    at = pick.randrange(len(own))
    if pick.random() < 0.3:  # the one that says most
        at = max(range(len(own)), key=lambda index: len(frame_of(own[index])))
    for message in own[:at]:
        yield Piece(frame_of(message))
    if pick.random() < 0.1:
        yield Piece(frame_of(pick.choice(own)))  # in an order that may be wrong
    else:
        piece = pick.choice(KINDS)(pick, own[at], foreign)
        yield piece
        if piece.breaks:
            return
    for message in own[at + 1 :]:
        yield Piece(frame_of(message))


def _noise(pick: random.Random, *_: Any) -> Piece:
    return Piece(pick.randbytes(pick.randint(1, 99)))


def _oversized(pick: random.Random, *_: Any) -> Piece:
    size_bytes = pick.choice([MOST_BYTES + 1, 2**31, 2**32 - 1])
    return Piece(HEADER.pack(size_bytes, 0) + pick.randbytes(9), breaks=True)


def _announces_many(pick: random.Random, due: Message, _: Any) -> Piece:
    return Piece(frame_of(due, pick.randint(2, 255)), breaks=True)


def _undecodable(pick: random.Random, *_: Any) -> Piece:
    payload = b"\xc1" + pick.randbytes(pick.randrange(99))  # no msgpack begins so
    return Piece(frame(payload), breaks=True)


def _foreign(pick: random.Random, _: Message, foreign: Sequence[Message]) -> Piece:
    return Piece(frame_of(pick.choice(foreign)), breaks=True)


def _truncated(pick: random.Random, due: Message, _: Any) -> Piece:
    data = frame_of(due)
    return Piece(data[: pick.randrange(len(data))])


def _long(pick: random.Random, *_: Any) -> Piece:
    """The beginning of a message that never ends."""
    return Piece(HEADER.pack(MOST_BYTES, 0) + bytes(pick.randrange(1 << 16)))


def _changed_bytes(pick: random.Random, due: Message, _: Any) -> Piece:
    if type(due).__name__ in KEPT:
        return _changed_value(pick, due, _)
    payload = bytearray(msgspec.msgpack.encode(due))
    for at in pick.choices(range(len(payload)), k=pick.randint(1, 4)):
        payload[at] = pick.randrange(256)
    return Piece(frame(bytes(payload)))


def _changed_value(pick: random.Random, due: Message, _: Any) -> Piece:
    return Piece(frame(changed(pick, due)))


def _lacks_descriptor(_pick: random.Random, due: Message, _: Any) -> Piece:
    return Piece(frame_of(due, 1), breaks=True)


def _unwanted(pick: random.Random, due: Message, _: Any) -> Piece:
    """A message that carries no descriptor, with one, as its header says."""
    return Piece(frame_of(due, 1), (pick.choice(list(MAKE)),), breaks=True)


def _unannounced(pick: random.Random, due: Message, _: Any) -> Piece:
    """Descriptors that no header announces."""
    count = pick.randint(2, MOST_DESCRIPTORS)
    kinds = tuple(pick.choices(list(MAKE), k=count))
    return Piece(frame_of(due), kinds, breaks=True)


KINDS: list[Callable[[random.Random, Message, Sequence[Message]], Piece]] = [
    *(_noise, _oversized, _announces_many, _undecodable, _foreign, _truncated, _long),
    *(
        _lacks_descriptor,
        _unwanted,
        _unannounced,
        _changed_bytes,
        *[_changed_value] * 9,
    ),
]


def changed(pick: random.Random, message: Message) -> bytes:
    """Encode a message with one of its values replaced, removed or repeated."""
    tree = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    kept = KEPT.get(tree[0], set())
    places = list(_places(tree, kept))
    if places:
        parent, at = pick.choice(places)
        change = pick.randrange(4)
        if change == 0 and isinstance(parent, list):
            del parent[at]
        elif change == 1 and isinstance(parent, list):
            parent.insert(at, parent[at])
        elif change == 2 and isinstance(parent[at], int):
            parent[at] += pick.choice([-1, 1])
        else:
            parent[at] = pick.choice(VALUES)
    return msgspec.msgpack.encode(tree)


def _places(tree: Any, kept: set[int] | None = None) -> Iterator[tuple[Any, Any]]:
    """Yield each container with an index of it; of the outermost not the kept ones."""
    within = list(enumerate(tree)) if isinstance(tree, list) else list(tree.items())
    for at, value in within:
        if kept is None or (at and at not in kept):
            yield tree, at
            if isinstance(value, (list, dict)):
                yield from _places(value)


# Descriptors


def _end_of_pipe(which: int) -> int:
    ends = os.pipe()
    os.close(ends[1 - which])
    return ends[which]


def _socket() -> int:
    return socket.socket(socket.AF_UNIX).detach()


def memfd(content: bytes, seals: int = 0) -> int:
    """A descriptor of memory with this content, with these seals."""
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


MAKE: dict[str, Callable[[], int]] = {
    "a pipe to read": lambda: _end_of_pipe(0),
    "a pipe to write": lambda: _end_of_pipe(1),
    "a socket": _socket,
    "a file": lambda: os.open(__file__, os.O_RDONLY),
    "an endless file": lambda: os.open("/dev/zero", os.O_RDONLY),
    "a directory": lambda: os.open("/", os.O_RDONLY),
    "a path": lambda: os.open("/", os.O_PATH),
    "memory that is not sealed": lambda: memfd(b"x" * 4096),
    "no memory": lambda: memfd(b"", 15),
}


def send(sock: socket.socket, piece: Piece) -> None:
    """Send a piece, as far as the other side takes it."""
    fds = [MAKE[kind]() for kind in piece.kinds]
    with suppress(OSError):
        if not fds:
            sock.sendall(piece.data)
        else:
            sent = socket.send_fds(sock, [piece.data], fds)
            if sent < len(piece.data):
                sock.sendall(piece.data[sent:])
    for fd in fds:
        os.close(fd)


def open_descriptors(pid: int | str = "self") -> dict[int, str]:
    """The descriptors of a process, with what they are."""
    found = {}
    for name in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            found[int(name.name)] = str(name.readlink())
    return found
