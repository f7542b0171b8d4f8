"""Ends or stops processes at named steps of the protocol, once each when it is armed.

A directory tells the processes which steps are armed:

    sitecustomize.py   installs this module in each Python process that finds it
    armed/STEP         the number of the signal to send at that step, as text
    done/STEP.PID      what was sent, and to which process

The first process that comes to an armed step takes the file. So what happens, happens
once, and between two particular messages; the code of the product knows nothing of it:
it is wrapped here, in the processes of a test only.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkcache.node import channel, lifetime
from sparkcache.node.messages import (
    Decoded,
    Finish,
    Grant,
    Loaded,
    Message,
    Served,
    ServedFromSegment,
    Start,
    Streamed,
    Take,
)

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = {
    "node: bound, not ready": "the process that began to listen, before it has forked",
    "node: listens, not ready": "the node, before it accepts connections",
    "starter: node not ready": "the worker that starts the node",
    "node: has begun a load": "",
    "node: has allotted a run": "before its loader has written it",
    "node: before a descriptor": "before it passes a descriptor to a task",
    "node: half a descriptor": "in the message that carries the descriptor to a task",
    "node: after a descriptor": "after it has passed a descriptor to a task",
    "loader: has a load": "before it requests anything",
    "loader: has fetched": "a run is fetched and decoded, and not announced",
    "loader: may write": "memory is allotted, and the run is not written",
    "loader: has written": "a run is sealed, and not passed to the node",
    "loader: half a descriptor": "in the message that carries the descriptor of a run",
    "worker: waits": "for a run that it has asked for",
    "worker: holds a run": "which the node counts as pinned",
    "worker: has read all": "and has not said so",
    "executor: a task waits": "the JVM, while its worker waits for a run",
    "executor: a loader writes": "the JVM, while a loader may write a run",
}
"""The steps, each with what it is where the name does not say so."""

_SERVED = (Served, ServedFromSegment, Streamed)


class Sent(NamedTuple):
    """A signal that was sent at a step."""

    step: str
    signal: signal.Signals
    pid: int


class Steps:
    """The steps of one run, as the test sees them.

    Args:
        directory: An empty directory, to be put first into PYTHONPATH.

    """

    def __init__(self, directory: Path) -> None:
        self._armed, self._done = directory / "armed", directory / "done"
        self._armed.mkdir()
        self._done.mkdir()
        (directory / "sitecustomize.py").write_text(
            f"from tests.stress import steps\nsteps.install({str(directory)!r})\n",
            encoding="utf-8",
        )

    def arm(self, step: str, number: signal.Signals) -> None:
        """Have a signal sent at a step, the next time that a process comes to it."""
        partial = self._armed / f".{step}"
        partial.write_text(str(int(number)), encoding="utf-8")
        partial.rename(self._armed / step)

    def disarm(self) -> None:
        """Have nothing sent any longer."""
        for path in self._armed.iterdir():
            path.unlink(missing_ok=True)

    def take(self) -> list[Sent]:
        """Return what was sent since the last call."""
        sent = []
        for path in sorted(self._done.iterdir()):
            number, pid = path.read_text(encoding="utf-8").split()
            path.unlink()
            step = path.name.rpartition(".")[0]
            sent.append(Sent(step, signal.Signals(int(number)), int(pid)))
        return sent


def install(directory: str) -> None:
    """Wrap what this process sends and receives, if it is a node or a Python worker."""
    if "sparkcache.node" in sys.orig_argv:
        _wrap_node(_Process(Path(directory)))
    elif "pyspark.daemon" in sys.orig_argv:
        _wrap_worker(_Process(Path(directory)))


class _Process:
    """A node, a loader or a worker, which comes to steps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._half = ""
        self._send_fds = socket.send_fds

    def at(self, step: str, victim: Callable[[], int] = os.getpid) -> None:
        """Send the signal, if the step is armed."""
        armed = self._directory / "armed" / step
        pid = victim() if armed.exists() else 0
        if not pid:
            return
        own = self._directory / f"taken.{os.getpid()}"
        try:
            armed.rename(own)
        except FileNotFoundError:
            return  # another process was here first
        number = int(own.read_text(encoding="utf-8"))
        own.write_text(f"{number} {pid}", encoding="utf-8")
        own.rename(self._directory / "done" / f"{step}.{os.getpid()}")
        os.kill(pid, number)

    def halve(self, step: str) -> None:
        """Send half of the next message that has a descriptor, if the step is armed."""
        if (self._directory / "armed" / step).exists():
            self._half = step

    def send_fds(
        self, sock: socket.socket, buffers: list[bytes], fds: list[int]
    ) -> int:
        """Send a message with a descriptor; in place of `socket.send_fds`."""
        step, self._half = self._half, ""
        if not step:
            return self._send_fds(sock, buffers, fds)
        (frame,) = buffers
        sent = self._send_fds(sock, [frame[: len(frame) // 2]], fds)
        self.at(step)
        return sent


def _starter() -> int:
    """Return the worker that starts this node; 0 if it has died already."""
    parent = os.getppid()
    command = Path(f"/proc/{parent}/cmdline").read_bytes()
    return parent if b"pyspark.daemon" in command else 0


def _wrap_node(process: _Process) -> None:
    """Wrap the channels of a node, and those of its loaders, which it forks."""
    from sparkcache.node import address, server

    def before_node_sends(message: Message) -> None:
        if isinstance(message, _SERVED):
            process.at("node: before a descriptor")
            process.halve("node: half a descriptor")

    def after_node_sends(message: Message) -> None:
        if isinstance(message, Start):
            process.at("node: has begun a load")
        elif isinstance(message, Grant):
            process.at("node: has allotted a run")
        elif isinstance(message, _SERVED):
            process.at("node: after a descriptor")

    def before_loader_sends(message: Message) -> None:
        if isinstance(message, Decoded):
            process.at("loader: has fetched")
        elif isinstance(message, Loaded):
            process.at("loader: has written")
            process.halve("loader: half a descriptor")

    def after_loader_receives(message: Message) -> None:
        if isinstance(message, Start):
            process.at("loader: has a load")
        elif isinstance(message, Grant):
            process.at("executor: a loader writes", victim=lifetime.executor_pid)
            process.at("loader: may write")

    listen, make_server = address.Address.listen, server._Server

    def listening(self: address.Address) -> socket.socket:
        listener = listen(self)
        process.at("starter: node not ready", victim=_starter)
        process.at("node: bound, not ready")
        return listener

    def made(*arguments: Any) -> Any:
        process.at("node: listens, not ready")
        return make_server(*arguments)

    address.Address.listen = listening  # type: ignore[method-assign]
    server._Server = made  # type: ignore[assignment, misc]
    socket.send_fds = process.send_fds  # type: ignore[assignment]
    _wrap_send(channel.AsyncChannel, before_node_sends, after_node_sends)
    _wrap_send(channel.Channel, before_loader_sends, lambda _: None)
    _wrap_receive(after_loader_receives)


def _wrap_worker(process: _Process) -> None:
    def before_sending(message: Message) -> None:
        if isinstance(message, Finish):
            process.at("worker: has read all")

    def after_sending(message: Message) -> None:
        if isinstance(message, Take):
            process.at("executor: a task waits", victim=lifetime.executor_pid)
            process.at("worker: waits")

    def after_receiving(message: Message) -> None:
        if isinstance(message, _SERVED):
            process.at("worker: holds a run")

    _wrap_send(channel.Channel, before_sending, after_sending)
    _wrap_receive(after_receiving)


def _wrap_send(
    kind: Any, before: Callable[[Message], None], after: Callable[[Message], None]
) -> None:
    send = kind.send

    def wrapped(self: Any, message: Message, fd: int | None = None) -> None:
        before(message)
        send(self, message, fd)
        after(message)

    kind.send = wrapped


def _wrap_receive(after: Callable[[Message], None]) -> None:
    kind: Any = channel.Channel
    receive = kind.receive

    def wrapped(self: Any) -> tuple[Message, int | None]:
        message, fd = receive(self)
        after(message)
        return message, fd

    kind.receive = wrapped
