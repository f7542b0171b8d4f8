"""Progress of query planning, shown in the terminal or notebook of the user.

Spark plans a query in a process of its own, which has no terminal:

    user's process    listen_once()           a thread draws the planners' progress
    planner           reporting_through(...)  sends it to a socket in that directory

Each planner has one connection, each step is one packet. A planner never waits for the
user's process: it stops reporting at the first packet that cannot be sent at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import socket
import tempfile
import threading
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from sparkcache.progress import Step, reporting_to
from sparkcache.source.driver.progress_bar import ProgressBar, can_draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sparkcache.progress import Display

_PACKET_BYTES = 1 << 16
_NAME = "progress.sock"

_log = logging.getLogger(__name__)


def listen_once() -> str | None:
    """Return the directory of the progress socket; None if no progress can be shown.

    The first call starts the thread that draws. The thread and the directory end with
    this process.
    """
    return _listening() if can_draw() else None


def reporting_through(directory: str | None) -> AbstractContextManager[None]:
    """Report this thread's progress within the block to the user's process."""
    if directory is None:
        return nullcontext()
    return reporting_to(lambda: _Sender(directory))


@cache
def _listening() -> str | None:
    try:
        directory = tempfile.mkdtemp(prefix="sparkcache-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        listener = Listener(directory, ProgressBar)
    except OSError as error:
        _log.debug("progress of planning is not shown: %r", error)
        return None
    threading.Thread(
        target=listener.serve, name="sparkcache-progress", daemon=True
    ).start()
    return directory


class Listener:
    """Shows the progress of planners, one planner after another."""

    def __init__(self, directory: str, open_display: Callable[[], Display]) -> None:
        self._open_display = open_display
        self._directory = directory
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with _short_path(directory) as path:
                self._socket.bind(path)
            self._socket.listen()
        except BaseException:
            self._socket.close()
            raise

    def __repr__(self) -> str:
        return f"Listener({self._directory})"

    def serve(self) -> None:
        """Accept planners and show their progress until closed."""
        while True:
            try:
                planner, _ = self._socket.accept()
            except OSError:
                return
            with planner:
                try:
                    self._show(planner)
                except Exception as error:
                    _log.debug("progress of one planner is not shown: %r", error)

    def close(self) -> None:
        """Close the socket, so that `serve` returns."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _show(self, planner: socket.socket) -> None:
        with closing(self._open_display()) as display:
            while packet := planner.recv(_PACKET_BYTES):
                display.show(msgspec.json.decode(packet, type=Step))


class _Sender:
    def __init__(self, directory: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        try:
            with _short_path(directory) as path:
                self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def show(self, step: Step) -> None:
        self._socket.send(msgspec.json.encode(step))

    def close(self) -> None:
        self._socket.close()


@contextmanager
def _short_path(directory: str) -> Iterator[str]:
    """Yield a path of the socket below the limit of 108 bytes."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{_NAME}"
    finally:
        os.close(fd)
