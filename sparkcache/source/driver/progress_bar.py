"""A bar in the user's terminal, on its standard error, or notebook. tqdm draws it."""

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
    """Tell whether anybody would see a bar."""
    stderr = sys.stderr
    is_terminal = stderr is not None and not stderr.closed and stderr.isatty()
    return is_terminal or "ipykernel.zmqshell" in sys.modules


@contextmanager
def drawn() -> Iterator[None]:
    """Draw how far this thread has come within the block, if anybody would see it."""
    if not can_draw():
        yield
        return
    with reporting_to(ProgressBar):
        yield


class ProgressBar:
    """One line, which is gone when it is closed."""

    def __init__(self) -> None:
        self._bar: tqdm[Any] | None = None
        self._doing = ""

    def __repr__(self) -> str:
        return f"ProgressBar({self._bar})"

    def show(self, step: Step) -> None:
        """Draw a step."""
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
            bar.total = bar.n  # a notebook would leave what has not come to its end
            bar.close()


@cache
def _tqdm() -> type[tqdm[Any]]:
    """Return a tqdm of our own: no thread, no semaphore, nothing of the user's bars."""
    from tqdm.auto import tqdm

    class Quiet(tqdm):  # type: ignore[type-arg]  # is none when it runs
        monitor_interval = 0
        _instances: ClassVar[WeakSet[Any]] = WeakSet()

    Quiet.set_lock(RLock())
    return Quiet
