"""A tqdm progress bar on standard error, in the user's terminal or notebook."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

from sparkcache.progress import reporting_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tqdm.auto import tqdm

    from sparkcache.progress import Step


def can_draw() -> bool:
    """Return whether the process has a terminal or notebook to draw in."""
    stderr = sys.stderr
    is_terminal = stderr is not None and not stderr.closed and stderr.isatty()
    return is_terminal or "ipykernel.zmqshell" in sys.modules


@contextmanager
def drawing_progress() -> Iterator[None]:
    """Draw this thread's progress within the block, if the process can draw."""
    if not can_draw():
        yield
        return
    with reporting_to(ProgressBar):
        yield


class ProgressBar:
    """One line on the screen, erased on close."""

    def __init__(self) -> None:
        self._bar: tqdm[Any] | None = None
        self._doing = ""

    def __repr__(self) -> str:
        return f"ProgressBar({self._bar})"

    def show(self, step: Step) -> None:
        """Draw a step; a step of other work starts a new line."""
        if step.doing != self._doing:
            self.close()
        if self._bar is None:
            self._doing = step.doing
            self._bar = _tqdm()(
                desc=step.doing,
                unit=f" {step.unit}",
                initial=step.done,
                total=step.total,
                leave=False,
                dynamic_ncols=True,
                mininterval=0,
            )
        else:
            self._bar.n = step.done
            self._bar.refresh()

    def close(self) -> None:
        """Erase the line."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.total = bar.n  # else a notebook keeps an unfinished bar
            bar.close()


@cache
def _tqdm() -> type[tqdm[Any]]:
    """Return a tqdm class without thread or semaphore, apart from the user's bars."""
    from tqdm.auto import tqdm

    class Quiet(tqdm):  # type: ignore[type-arg]  # not generic at run time
        monitor_interval = 0
        _instances: ClassVar[WeakSet[Any]] = WeakSet()

    Quiet.set_lock(RLock())
    return Quiet
