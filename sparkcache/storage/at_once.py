"""Many calls that wait, made at once by threads; their results, in order."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import Future

_LARGEST_SHARE = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def results(
    call: Callable[[_Item], _Result], items: Sequence[_Item], threads: int
) -> Generator[_Result]:
    """Yield what `call` returns for each item, in the order of the items.

    A thread takes a share of the items at a time, and calls are at most two shares a
    thread ahead of what was taken. What `call` raises ends the results. Calls that have
    not begun when the iterator is closed are not made.
    """
    threads = min(threads, len(items))
    if threads < 2:
        yield from map(call, items)
        return
    size = max(1, min(_LARGEST_SHARE, len(items) // (2 * threads)))
    ahead: deque[Future[list[_Result]]] = deque()
    with ThreadPoolExecutor(threads, "storage") as pool:
        try:
            for first in range(0, len(items), size):
                share = items[first : first + size]
                ahead.append(pool.submit(_each, call, share))
                if len(ahead) >= 2 * threads:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _each(call: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    return [call(item) for item in items]
