"""Many calls that wait, made at once by threads; their results, in order."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from concurrent.futures import Future

_LARGEST_SHARE = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def results(
    call: Callable[[Sequence[_Item]], Iterable[_Result]],
    items: Sequence[_Item],
    threads: int,
) -> Generator[_Result]:
    """Yield what `call` returns for shares of the items, in the order of the items.

    Calls are at most two shares a thread ahead of what was taken. What `call` raises
    ends the results. Calls that have not begun when the iterator is closed are not
    made.
    """
    threads = min(threads, len(items))
    if threads < 2:
        yield from call(items)
        return
    size = max(1, min(_LARGEST_SHARE, len(items) // (2 * threads)))
    ahead: deque[Future[Iterable[_Result]]] = deque()
    with ThreadPoolExecutor(threads, "storage") as pool:
        try:
            for first in range(0, len(items), size):
                ahead.append(pool.submit(call, items[first : first + size]))
                if len(ahead) >= 2 * threads:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
