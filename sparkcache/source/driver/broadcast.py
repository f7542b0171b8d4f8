"""A broadcast variable that a data source may hold.

Spark pickles a data source more than once on its way to a task, and refuses to pickle
a Broadcast outside the driver. So a `BroadcastRef` pickles as the variable's id;
the first pickling registers the variable, which Spark then sends to every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.core.broadcast import _broadcastRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

T = TypeVar("T")


class BroadcastRef(Generic[T]):
    """Reference to a broadcast variable, in the driver and in every worker."""

    def __init__(self, context: SparkContext, value: T) -> None:
        self._broadcast: Any = context.broadcast(value)
        self._id: int = self._broadcast._jbroadcast.id()

    def __reduce__(self) -> tuple[Callable[[int], BroadcastRef[T]], tuple[int]]:
        if self._broadcast is not None:
            self._broadcast._pickle_registry.add(self._broadcast)
        return _restore, (self._id,)

    @property
    def value(self) -> T:
        """The broadcast value, fetched once for each executor."""
        broadcast = self._broadcast or _broadcastRegistry[self._id]
        value: T = broadcast.value
        return value


def _restore(broadcast_id: int) -> BroadcastRef[Any]:
    ref: BroadcastRef[Any] = BroadcastRef.__new__(BroadcastRef)
    ref._broadcast = None
    ref._id = broadcast_id
    return ref
