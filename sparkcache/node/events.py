"""The events of a node: what `Service.handle` is called with.

A descriptor that comes with an event is owned by the service from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sparkcache.node.messages import (
        Clear,
        EndPlans,
        Finish,
        FromLoader,
        GetLosses,
        GetMetrics,
        GetStatus,
        GetTopicMetrics,
        LoadedDirectly,
        Open,
        QueryProgress,
        ReportLosses,
        Take,
    )
    from sparkcache.node.reader_session import Peer, ReaderSession

    TaskRequest: TypeAlias = (
        Open
        | Take
        | Finish
        | LoadedDirectly
        | QueryProgress
        | EndPlans
        | Clear
        | ReportLosses
        | GetMetrics
        | GetTopicMetrics
        | GetLosses
        | GetStatus
    )


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A task, or the driver, has sent a message."""

    session: ReaderSession
    message: TaskRequest


@dataclass(frozen=True, slots=True)
class TaskClosed:
    """The connection of a session is closed."""

    session: ReaderSession


@dataclass(frozen=True, slots=True)
class LoaderReady:
    """A new loader waits for work."""

    loader: Peer


@dataclass(frozen=True, slots=True)
class LoaderMessage:
    """A loader has sent a message, with a descriptor if the message has one."""

    loader: Peer
    message: FromLoader
    fd: int | None = None


@dataclass(frozen=True, slots=True)
class LoaderClosed:
    """The connection of a loader is closed; its process may still write."""

    loader: Peer


@dataclass(frozen=True, slots=True)
class LoaderEnded:
    """The process of a loader has ended; comes after `LoaderClosed`.

    Attributes:
        loader: The connection it had.
        gets: GET requests that it has not reported with a load.
        received_bytes: Bytes that it has received and not reported.
        retries: Repeated requests that it has not reported.

    """

    loader: Peer
    gets: int = 0
    received_bytes: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: comes about twice per second."""


Event: TypeAlias = (
    TaskMessage
    | TaskClosed
    | LoaderReady
    | LoaderMessage
    | LoaderClosed
    | LoaderEnded
    | Tick
)
