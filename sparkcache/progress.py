"""How far work has come that may take long: told by who does it, to who may show it.

    with told_to(open_display):             source: here somebody is looking
        ...
        for item in steps(items, ...):      connectors: wherever requests are many
            ...

Nothing is told of work that is over soon, and little of any other. What goes wrong
with telling is logged, and the work goes on.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

FIRST_S = 0.5
PAUSE_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """How far it has come.

    Attributes:
        doing: What is being done.
        unit: What is counted.
        done: How many of them are behind.
        total: How many there are; None if that is not known.

    """

    doing: str
    unit: str
    done: int
    total: int | None


class Display(Protocol):
    """Shows steps, or passes them on to who does. May raise anything."""

    def show(self, step: Step) -> None:
        """Show a step in the place of the one before."""

    def close(self) -> None:
        """Show nothing more, and leave nothing."""


def steps(
    items: Iterable[T], doing: str, unit: str, total: int | None = None
) -> Iterator[T]:
    """Yield the items; tell of each when the next is asked for."""
    teller = _teller.get()
    if teller is None:
        yield from items
        return
    for done, item in enumerate(items, 1):
        yield item
        if teller.is_due():
            teller.tell(Step(doing, unit, done, total))


@contextmanager
def told_to(
    open_display: Callable[[], Display], now_s: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Tell of this thread's steps within the block, to what is opened when need be."""
    teller = _Teller(open_display, now_s)
    token = _teller.set(teller)
    try:
        yield
    finally:
        _teller.reset(token)
        teller.close()


class _Teller:
    """Says when to tell, and has a display from the first time on."""

    def __init__(
        self, open_display: Callable[[], Display], now_s: Callable[[], float]
    ) -> None:
        self._open_display = open_display
        self._now_s = now_s
        self._due_s = now_s() + FIRST_S
        self._display: Display | None = None

    def __repr__(self) -> str:
        return f"_Teller(due at {self._due_s:.1f} s, {self._display!r})"

    def is_due(self) -> bool:
        return self._now_s() >= self._due_s

    def tell(self, step: Step) -> None:
        try:
            if self._display is None:
                self._display = self._open_display()
            self._display.show(step)
        except Exception as error:
            self._give_up(error)
        else:
            self._due_s = self._now_s() + PAUSE_S

    def close(self) -> None:
        display, self._display = self._display, None
        try:
            if display is not None:
                display.close()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._due_s < float("inf"):
            _log.debug("progress is no longer shown: %r", error)
        self._due_s = float("inf")


_teller: ContextVar[_Teller | None] = ContextVar("_teller", default=None)
