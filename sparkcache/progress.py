"""Progress reports of long work, from the code that does it to a display.

    with reporting_to(open_display):        source: where a user may be watching
        ...
        for item in steps(items, ...):      connectors: where requests are many
            ...

Short work is not reported at all, long work a few times a second. If the display
raises an error, the error is logged and the work continues without reports.
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
    """How far some work has come.

    Attributes:
        doing: The work in progress, such as "Listing".
        unit: What is counted, such as "objects".
        done: How many of them are done.
        total: How many there are in all; None if unknown.

    """

    doing: str
    unit: str
    done: int
    total: int | None


class Display(Protocol):
    """Shows steps, or passes them on to be shown. May raise any error."""

    def show(self, step: Step) -> None:
        """Show a step in place of the previous one."""

    def close(self) -> None:
        """Remove what is shown, and show nothing further."""


def steps(
    items: Iterable[T], doing: str, unit: str, total: int | None = None
) -> Iterator[T]:
    """Yield the items; each is reported as done when the next one is requested."""
    reporter = _reporter.get()
    if reporter is None:
        yield from items
        return
    for done, item in enumerate(items, 1):
        yield item
        if reporter.is_due():
            reporter.report(Step(doing, unit, done, total))


@contextmanager
def reporting_to(
    open_display: Callable[[], Display], now_s: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Report the steps of this thread within the block.

    Args:
        open_display: Opens the display for the first report, if there ever is one.
        now_s: The clock.

    """
    reporter = _Reporter(open_display, now_s)
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)
        reporter.close()


class _Reporter:
    """Decides when a report is due, and opens the display for the first one."""

    def __init__(
        self, open_display: Callable[[], Display], now_s: Callable[[], float]
    ) -> None:
        self._open_display = open_display
        self._now_s = now_s
        self._due_s = now_s() + FIRST_S
        self._display: Display | None = None

    def __repr__(self) -> str:
        return f"_Reporter(due at {self._due_s:.1f} s, {self._display!r})"

    def is_due(self) -> bool:
        return self._now_s() >= self._due_s

    def report(self, step: Step) -> None:
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


_reporter: ContextVar[_Reporter | None] = ContextVar("_reporter", default=None)
