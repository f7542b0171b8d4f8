"""Find where the messages of many batches start, at once.

The metadata of a message are rarely longer than 255 bytes. So a message starts with
three zero bytes, two of which are an aligned zero of 16 bits. numpy finds all of these,
whatever they are, and where the next message would start after each. If that joins them
from the first byte of a batch to its last, they are the messages of the batch.

All other batches are walked message by message, with the same result (batches.py), and
so are batches of large messages, where there is little to gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparkcache_pulsar.batches import BEFORE_SIZE_TAGS, SIZE_TAG, message_starts
from sparkcache_pulsar.protobuf import SLACK_BYTES, read_varints

if TYPE_CHECKING:
    from sparkcache.arrays import Bools, Bytes, Ints

_MAX_MEAN_BYTES = 4 << 10
_MAX_ZEROS = 4  # for each message
_LEAST_BYTES = 8  # for each zero: what is found takes eight times as much memory
_FLAGS = 8  # in a word of flags
_MAX_SIZE = 1 << 31
_IS_BEFORE_SIZE = np.isin(np.arange(256), list(BEFORE_SIZE_TAGS))
_IS_FIRST = np.isin(np.arange(256), [*BEFORE_SIZE_TAGS, SIZE_TAG])


def find_starts(
    buffer: Bytes, start: Ints, end: Ints, limit: Ints
) -> tuple[Ints, Ints]:
    """Return the number of messages in each batch, and the starts of all messages.

    The number is -1 for a batch that is not filled by up to `limit` messages.

    Args:
        buffer: The bytes, with SLACK_BYTES after the last batch.
        start: Start of each batch; they are in order, and do not overlap.
        end: End of each batch.
        limit: The largest number of messages in each batch.

    """
    messages = int(limit.sum())
    if not messages or int(end[-1] - start[0]) > _MAX_MEAN_BYTES * messages:
        return _walked(buffer, start, end, limit)
    low, high = int(start[0]), int(end[-1])
    most = min(_MAX_ZEROS * messages, (high - low) // _LEAST_BYTES)
    found = _candidates(buffer, low, high, most)
    after = _after(buffer, found, high)
    first, stop, joined = _joined(found, after, start, end)
    if not joined.all():
        kept = np.isin(found, np.concatenate([start, after]))
        found, after = found[kept], after[kept]
        first, stop, joined = _joined(found, after, start, end)
    counts = stop - first
    joined &= counts <= limit
    if joined.all() and int(counts.sum()) == len(found):
        return counts, found
    found = found[_between(first[joined], stop[joined], len(found))]
    apart = np.flatnonzero(~joined)
    counts[apart], walked = _walked(buffer, start[apart], end[apart], limit[apart])
    return counts, np.sort(np.concatenate([found, walked]))


def _candidates(buffer: Bytes, low: int, high: int, most: int) -> Ints:
    """Return where messages may start, in order; none if too many bytes are zero."""
    zeros = _zeros(buffer, low, high, most)
    start = np.repeat(zeros, 2)
    start[::2] -= 1  # the zero is at its first and second byte, or at the next two
    third = start.copy()
    third[1::2] += 2
    is_start = (buffer[third] == 0) & _IS_FIRST[buffer[start + 4]]
    found: Ints = start[is_start & (start >= low) & (start < high)]
    return found


def _zeros(buffer: Bytes, low: int, high: int, most: int) -> Ints:
    """Return the positions of aligned zeros of 16 bits; none if too many are."""
    low += (buffer.__array_interface__["data"][0] + low) % 2
    words = max(0, high + 2 - low) // 2 // _FLAGS
    whole = low + 2 * _FLAGS * words
    is_zero = buffer[low:whole].view(np.uint16) == 0
    # Few are, so whole words of flags are searched first.
    word = np.flatnonzero(is_zero.view(np.uint64) != 0)
    flags = is_zero.reshape(-1, _FLAGS)[word]
    if np.count_nonzero(flags) > most:
        return np.zeros(0, np.int64)
    row, column = flags.nonzero()
    rest = np.arange(whole, high, 2)
    rest = rest[(buffer[rest] == 0) & (buffer[rest + 1] == 0)]
    return np.concatenate([low + 2 * (_FLAGS * word[row] + column), rest])


def _after(buffer: Bytes, start: Ints, high: int) -> Ints:
    """Return where messages that start here end; -1 if the size is not where it is due.

    See `message_starts`, which says what is skipped.
    """
    offset = start + 4
    metadata_bytes = buffer[start + 3]
    end = np.minimum(offset + metadata_bytes, high)
    lanes = np.flatnonzero(_IS_BEFORE_SIZE[buffer[offset]])
    while len(lanes):
        skipped = buffer[offset[lanes] + 1]
        passed = offset[lanes] + 2 + skipped
        is_within = (skipped < 0x80) & (passed < end[lanes])
        offset[lanes] = np.where(is_within, passed, end[lanes])
        lanes = lanes[is_within & _IS_BEFORE_SIZE[buffer[offset[lanes]]]]
    size, length = read_varints(buffer, offset + 1)
    is_found = (offset < end) & (buffer[offset] == SIZE_TAG)
    is_found &= (length > 0) & (size < _MAX_SIZE)
    return np.where(is_found, start + 4 + metadata_bytes + size.view(np.int64), -1)


def _joined(
    found: Ints, after: Ints, start: Ints, end: Ints
) -> tuple[Ints, Ints, Bools]:
    """Return which candidates lie in each batch, and whether they are its messages."""
    first, stop = np.searchsorted(found, start), np.searchsorted(found, end)
    some = np.flatnonzero(stop > first)
    joined = np.zeros(len(start), np.bool_)
    joined[some] = found[first[some]] == start[some]
    due = np.concatenate([found[1:], found[:1]])
    due[stop[some] - 1] = end[some]
    apart = np.concatenate([[0], np.cumsum(after != due)])
    joined &= apart[stop] == apart[first]
    return first, stop, joined


def _between(first: Ints, stop: Ints, length: int) -> Bools:
    """Return which indexes are in one of these ranges."""
    begun = np.bincount(first, minlength=length + 1)
    ended = np.bincount(stop, minlength=length + 1)
    within: Bools = np.cumsum(begun - ended)[:-1] > 0
    return within


def _walked(buffer: Bytes, start: Ints, end: Ints, limit: Ints) -> tuple[Ints, Ints]:
    """Walk batches message by message; see `find_starts`."""
    view, counts = buffer.data, np.full(len(start), -1)
    chains = [np.zeros(0, np.int64)]
    for index, (low, high, most) in enumerate(
        zip(start.tolist(), end.tolist(), limit.tolist(), strict=True)
    ):
        starts = message_starts(view[low : high + SLACK_BYTES], most)
        if starts is not None:
            counts[index] = len(starts)
            chains.append(np.array(starts, np.int64) + low)
    return counts, np.concatenate(chains)
