"""Messages over a Unix stream socket, with descriptors beside them.

A frame is its length (uint32, little-endian), the number of descriptors that come
with it (0 or 1, one byte), and that many bytes of msgpack.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from array import array
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from sparkcache.errors import CacheUnavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Iterator

    from sparkcache.node.messages import Message

_log = logging.getLogger(__name__)

_HEADER = struct.Struct("<IB")
_LIMIT_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
_MOST_DESCRIPTORS = 16

T = TypeVar("T")


class BrokenChannelError(CacheUnavailable):
    """The other side is gone, or does not speak the protocol."""


class Frames(Generic[T]):
    """Cuts what arrives into messages. Owns descriptors until they are handed out."""

    def __init__(self, types: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(types)
        self._data = bytearray()
        self._descriptors: deque[int] = deque()

    def feed(self, data: bytes, descriptors: Iterable[int]) -> None:
        """Take in what was received."""
        self._data += data
        self._descriptors.extend(descriptors)

    def messages(self) -> Iterator[tuple[T, int | None]]:
        """Yield each whole message and its descriptor, which the caller then owns."""
        while len(self._data) >= _HEADER.size:
            size, descriptors = _HEADER.unpack_from(self._data)
            if size > _LIMIT_BYTES or descriptors > 1:
                raise BrokenChannelError(
                    f"a frame of {size} bytes and {descriptors} descriptors"
                )
            end = _HEADER.size + size
            if len(self._data) < end:
                return
            payload = bytes(self._data[_HEADER.size : end])
            del self._data[:end]
            try:
                message = self._decoder.decode(payload)
                fd = self._descriptors.popleft() if descriptors else None
            except (msgspec.MsgspecError, IndexError) as error:
                raise BrokenChannelError(
                    f"a frame that is no message: {error}"
                ) from error
            yield message, fd

    def close(self) -> None:
        """Drop what nobody took, and close its descriptors."""
        self._data.clear()
        while self._descriptors:
            os.close(self._descriptors.popleft())


class Channel(Generic[T]):
    """The blocking side of a connection: a task, or a loader."""

    def __init__(self, sock: socket.socket, types: object) -> None:
        self._socket = sock
        self._frames = Frames[T](types)
        self._waiting: deque[tuple[T, int | None]] = deque()

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message; the descriptor stays the caller's."""
        frame = _frame(message, fd)
        try:
            if fd is None:
                self._socket.sendall(frame)
            else:
                sent = socket.send_fds(self._socket, [frame], [fd])
                if sent < len(frame):  # or it fails if the other side has it and left
                    self._socket.sendall(frame[sent:])
        except OSError as error:
            raise BrokenChannelError(f"while sending: {error}") from error

    def receive(self) -> tuple[T, int | None]:
        """Wait for a message; the caller owns the descriptor."""
        while not self._waiting:
            try:
                data = _receive(self._socket, self._frames)
            except OSError as error:
                raise BrokenChannelError(f"while waiting: {error}") from error
            if not data:
                raise BrokenChannelError("the other side is gone")
            self._waiting.extend(self._frames.messages())
        return self._waiting.popleft()

    def close(self) -> None:
        """Hang up."""
        for _, fd in self._waiting:
            if fd is not None:
                os.close(fd)
        self._waiting.clear()
        self._frames.close()
        self._socket.close()


class AsyncChannel(Generic[T]):
    """The node's side of a connection, driven by its event loop.

    Calls nobody back from within `send` or `close`: who is in the middle of a decision
    is not called again until it is made.

    Args:
        on_message: Called with each message and its descriptor, which it owns.
        on_close: Called once, after the connection has ended, whoever ended it.

    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        types: object,
        *,
        on_message: Callable[[T, int | None], None],
        on_close: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._frames = Frames[T](types)
        self._on_message = on_message
        self._on_close = on_close
        self._unsent: deque[tuple[bytes, int | None]] = deque()
        self._closed = False
        sock.setblocking(False)
        loop.add_reader(sock, self._readable)

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message, later if need be; the descriptor stays the caller's.

        Raises nothing: what cannot be sent ends the connection.
        """
        if self._closed:
            return
        try:
            frame = _frame(message, fd)
            own_fd = None if fd is None else os.dup(fd)
        except (BrokenChannelError, OSError) as error:
            _log.warning("connection ends: %s", error)
            self.close()
            return
        self._unsent.append((frame, own_fd))
        if len(self._unsent) == 1:
            self._writable()

    def close(self) -> None:
        """Hang up; `on_close` is called later."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        for _, fd in self._unsent:
            if fd is not None:
                os.close(fd)
        self._unsent.clear()
        self._end()

    def _end(self) -> None:
        """Let go of the connection."""
        self._frames.close()
        self._socket.close()
        self._loop.call_soon(self._on_close)

    def _readable(self) -> None:
        try:
            data = _receive(self._socket, self._frames)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        try:
            for message, fd in self._frames.messages():
                self._on_message(message, fd)
                if self._closed:
                    return
        except BrokenChannelError as error:
            _log.warning("connection ends: %s", error)
            self.close()
            return
        except Exception:
            _log.exception("connection ends")  # so that nobody waits for an answer
            self.close()
            return
        if not data:
            self.close()

    def _writable(self) -> None:
        while self._unsent:
            frame, fd = self._unsent[0]
            try:
                if fd is None:
                    sent = self._socket.send(frame)
                else:
                    sent = socket.send_fds(self._socket, [frame], [fd])
                    os.close(fd)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._writable)
                return
            except OSError:
                self.close()
                return
            if sent < len(frame):
                self._unsent[0] = (frame[sent:], None)
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._socket)


class PatientChannel(AsyncChannel[T]):
    """A connection that ends when the other side ends it, for as it may map memory.

    Hanging up tells it to. What it still says is not listened to.
    """

    def _end(self) -> None:
        with suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_WR)
        self._loop.add_reader(self._socket, self._await_end)

    def _await_end(self) -> None:
        try:
            data = _receive(self._socket, self._frames)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._frames.close()
        if not data:
            self._loop.remove_reader(self._socket)
            super()._end()


def _receive(sock: socket.socket, frames: Frames[Any]) -> bytes:
    """Receive what has come; raises OSError, also if a descriptor was lost."""
    # Not recv_fds: it takes flags and does not pass them on.
    descriptors = array("i")
    data, ancillary, flags, _ = sock.recvmsg(
        _CHUNK_BYTES,
        socket.CMSG_LEN(_MOST_DESCRIPTORS * descriptors.itemsize),
        socket.MSG_CMSG_CLOEXEC,
    )
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(content) - len(content) % descriptors.itemsize
            descriptors.frombytes(content[:whole])
    frames.feed(data, descriptors)
    if flags & socket.MSG_CTRUNC:
        raise OSError(errno.EMFILE, "no descriptor is free for what was sent")
    return data


def _frame(message: Message, fd: int | None) -> bytes:
    payload = msgspec.msgpack.encode(message)
    if len(payload) > _LIMIT_BYTES:
        raise BrokenChannelError(
            f"{type(message).__name__} of {len(payload)} bytes, limit {_LIMIT_BYTES}"
        )
    return _HEADER.pack(len(payload), fd is not None) + payload
