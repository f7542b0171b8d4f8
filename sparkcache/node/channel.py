"""Messages over a Unix stream socket, with descriptors attached.

A frame is its length (uint32, little-endian), the number of attached descriptors (0 or
1, one byte), and that many bytes of msgpack.
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
_MAX_FRAME_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
_MAX_DESCRIPTORS = 16
_MAX_UNSENT = 1024
_MAX_UNSENT_BYTES = 2 * _MAX_FRAME_BYTES

T = TypeVar("T", bound="Message")


class BrokenChannelError(CacheUnavailable):
    """The peer is gone, or violates the protocol."""


class SilentPeerError(BrokenChannelError):
    """The peer has neither sent nor received anything within the timeout."""


class Frames(Generic[T]):
    """Cuts received bytes into messages; owns descriptors until they are taken."""

    def __init__(self, types: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(types)
        self._data = bytearray()
        self._descriptors: deque[int] = deque()

    def feed(self, data: bytes, descriptors: Iterable[int]) -> None:
        """Add received bytes and descriptors."""
        self._data += data
        self._descriptors.extend(descriptors)

    def messages(self) -> Iterator[tuple[T, int | None]]:
        """Yield each complete message and its descriptor, owned by the caller.

        Raises BrokenChannelError if the peer violates the protocol.
        """
        while len(self._data) >= _HEADER.size:
            size, descriptors = _HEADER.unpack_from(self._data)
            if size > _MAX_FRAME_BYTES or descriptors > 1:
                raise BrokenChannelError(
                    f"invalid frame: {size} bytes, {descriptors} descriptors"
                )
            end = _HEADER.size + size
            if len(self._data) < end:
                break
            payload = bytes(self._data[_HEADER.size : end])
            del self._data[:end]
            message = self._decode(payload)
            yield message, self._descriptor_of(message) if descriptors else None
        if len(self._descriptors) > 1:  # that of a frame that is not complete yet
            raise BrokenChannelError(
                f"{len(self._descriptors)} descriptors that belong to no message"
            )

    def _decode(self, payload: bytes) -> T:
        try:
            return self._decoder.decode(payload)
        # ValueError: text that is not UTF-8
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BrokenChannelError(
                f"a frame does not decode to a message: {error}"
            ) from error

    def _descriptor_of(self, message: Message) -> int:
        name = type(message).__name__
        if not message.carries_descriptor:
            raise BrokenChannelError(f"{name} with a descriptor, expected none")
        if not self._descriptors:
            raise BrokenChannelError(f"{name} without the descriptor it announces")
        return self._descriptors.popleft()

    def close(self) -> None:
        """Drop the remaining bytes and close the descriptors that nobody took."""
        self._data.clear()
        while self._descriptors:
            os.close(self._descriptors.popleft())


class Channel(Generic[T]):
    """The blocking end of a connection, for a task or a loader."""

    def __init__(self, sock: socket.socket, types: object) -> None:
        self._socket = sock
        self._frames = Frames[T](types)
        self._received: deque[tuple[T, int | None]] = deque()

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message; the caller keeps the descriptor."""
        frame = _frame(message, fd)
        try:
            if fd is None:
                self._socket.sendall(frame)
            else:
                sent = socket.send_fds(self._socket, [frame], [fd])
                if sent < len(frame):  # an empty one would fail if the peer has left
                    self._socket.sendall(frame[sent:])
        except OSError as error:
            raise _broken("sending", error) from error

    def receive(self) -> tuple[T, int | None]:
        """Wait for a message; the caller owns the descriptor."""
        while not self._received:
            try:
                data = _receive(self._socket, self._frames)
            except OSError as error:
                raise _broken("waiting", error) from error
            if not data:
                raise BrokenChannelError("the peer is gone")
            self._received.extend(self._frames.messages())
        return self._received.popleft()

    def close(self) -> None:
        """Close the connection."""
        for _, fd in self._received:
            if fd is not None:
                os.close(fd)
        self._received.clear()
        self._frames.close()
        self._socket.close()


class AsyncChannel(Generic[T]):
    """The node's end of a connection, driven by its event loop.

    `send` and `close` never call back directly, so a caller in the middle of a decision
    is not called again before the decision is made.

    Args:
        on_message: Called with each message and its descriptor, which it owns.
        on_close: Called once, after the connection has ended on either side.

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
        self._unsent_bytes = 0
        self._closed = False
        sock.setblocking(False)
        loop.add_reader(sock, self._readable)

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message, later if need be; the caller keeps the descriptor.

        Raises nothing: if a message cannot be sent, or the peer receives too little of
        what it is sent, the connection is closed.
        """
        if self._closed:
            return
        try:
            frame = _frame(message, fd)
            self._require_room()
            own_fd = None if fd is None else os.dup(fd)
        except (BrokenChannelError, OSError) as error:
            _log.warning("closing a connection: %s", error)
            self.close()
            return
        self._unsent.append((frame, own_fd))
        self._unsent_bytes += len(frame)
        if len(self._unsent) == 1:
            self._writable()

    def close(self) -> None:
        """Close the connection; `on_close` is called later."""
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

    def _require_room(self) -> None:
        """Raise BrokenChannelError if the peer does not receive what it is sent."""
        if len(self._unsent) >= _MAX_UNSENT or self._unsent_bytes >= _MAX_UNSENT_BYTES:
            raise BrokenChannelError(
                f"the peer leaves {len(self._unsent)} messages of "
                f"{self._unsent_bytes} bytes, limits {_MAX_UNSENT} and "
                f"{_MAX_UNSENT_BYTES}"
            )

    def _end(self) -> None:
        """Release the socket and schedule `on_close`."""
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
            _log.warning("closing a connection: %s", error)
            self.close()
            return
        except Exception:
            _log.exception("closing a connection")  # or the peer might wait forever
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
            self._unsent_bytes -= sent
            if sent < len(frame):
                self._unsent[0] = (frame[sent:], None)
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._socket)


class PatientChannel(AsyncChannel[T]):
    """A connection that waits for its peer to close, since the peer may map memory.

    Shutting down the sending side asks the peer to close. Its further messages are
    dropped.
    """

    def _end(self) -> None:
        with suppress(OSError):  # the peer is gone already
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
    """Receive available bytes; raises OSError, also if a descriptor was lost."""
    # Not recv_fds: it takes flags but does not pass them on.
    descriptors = array("i")
    data, ancillary, flags, _ = sock.recvmsg(
        _CHUNK_BYTES,
        socket.CMSG_LEN(_MAX_DESCRIPTORS * descriptors.itemsize),
        socket.MSG_CMSG_CLOEXEC,
    )
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(content) - len(content) % descriptors.itemsize
            descriptors.frombytes(content[:whole])
    frames.feed(data, descriptors)
    if flags & socket.MSG_CTRUNC:
        raise OSError(errno.EMFILE, "no free descriptor for the one that was sent")
    return data


def _broken(doing: str, error: OSError) -> BrokenChannelError:
    is_silent = isinstance(error, TimeoutError)
    kind = SilentPeerError if is_silent else BrokenChannelError
    return kind(f"while {doing}: {error}")


def _frame(message: Message, fd: int | None) -> bytes:
    try:
        payload = msgspec.msgpack.encode(message)
    except UnicodeEncodeError as error:
        raise BrokenChannelError(
            f"{type(message).__name__} has a name that is not UTF-8: {error}"
        ) from error
    if len(payload) > _MAX_FRAME_BYTES:
        raise BrokenChannelError(
            f"{type(message).__name__} of {len(payload)} bytes, "
            f"limit {_MAX_FRAME_BYTES}"
        )
    return _HEADER.pack(len(payload), fd is not None) + payload
