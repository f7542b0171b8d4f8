"""Finds the queues of topics, and where their records lie, from what is stored.

    flat files      what there is of each queue             flat_files.py
    survey          which offsets lie where                 survey.py

The objects are listed once; a queue is looked at when it is asked for.
"""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import NoSuchTopicError
from sparkcache.model import Extent, Ledger, qualified_topic
from sparkcache_rocketmq.extents import EXTENT_BYTES
from sparkcache_rocketmq.flat_files import QueueFiles, read_queues
from sparkcache_rocketmq.generation import with_generation
from sparkcache_rocketmq.metadata import read_deleted
from sparkcache_rocketmq.names import Name
from sparkcache_rocketmq.survey import survey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkcache.connector import Selection, Storage
    from sparkcache_rocketmq.names import Queue
    from sparkcache_rocketmq.survey import Segment, Survey

CONNECTOR = "rocketmq"

_QUEUES_TOLD = 10
_log = logging.getLogger(__name__)


class Catalog:
    """What brokers have tiered; see `sparkcache.connector.Catalog`.

    Args:
        storage: Where.
        options: Those of a scan.
        decoding: How what is found is to be decoded.
        extent_bytes: How large an extent may be.

    """

    def __init__(
        self,
        storage: Storage,
        options: Mapping[str, str],
        decoding: str,
        extent_bytes: int = EXTENT_BYTES,
    ) -> None:
        self._storage = storage
        self._decoding = decoding
        self._extent_bytes = extent_bytes
        self._is_deleted = read_deleted(storage, options)
        self._queues = read_queues(storage, self._is_deleted)

    def __repr__(self) -> str:
        return f"Catalog({self._storage.root}, {len(self._queues)} queues)"

    def select(self, selection: Selection) -> Sequence[str]:
        """Return the queues that are meant; raises ConfigError."""
        if selection.pattern is not None:
            matches = selection.pattern.fullmatch
            found = [str(queue) for queue in self._queues if matches(str(queue))]
            if not found:
                raise self._unknown(str(selection), selection.pattern.pattern)
        else:
            found = [name for text in selection.names for name in self._named(text)]
        return list(dict.fromkeys(found))

    def snapshot(self, topic: str) -> Snapshot:
        """Return the ledgers of a queue; raises ConfigError, SourceError."""
        queue = self._queue(topic)
        found = self._survey(queue, self._queues[queue])
        if found.losses:
            # The consume queue may have been listed later than what it speaks of, and
            # what has expired since then is no loss.
            found = self._survey(queue, self._listed_again(queue))
        place = qualified_topic(topic, self._storage.root)
        _log.info("%s: %r", place, found)
        maps = [self._ledger_map(place, queue, segment) for segment in found.segments]
        return Snapshot(tuple(maps), tuple(found.losses))

    def _survey(self, queue: Queue, files: QueueFiles) -> Survey:
        return survey(self._storage, queue.id, files, self._extent_bytes)

    def _listed_again(self, queue: Queue) -> QueueFiles:
        """Return a newer listing of what the consume queue has had before."""
        end = self._queues[queue].consume_queue.end
        self._queues = read_queues(self._storage, self._is_deleted)
        files = self._queues[self._queue(str(queue))]
        return QueueFiles(files.commit_log, files.consume_queue.up_to(end))

    def _ledger_map(self, place: str, queue: Queue, segment: Segment) -> LedgerMap:
        how = with_generation(segment.beginning, self._decoding)
        ledger = Ledger(CONNECTOR, place, queue.id, segment.piece.object, how)
        begin = segment.piece.place
        extents = tuple(
            Extent(span.first, span.last, span.place - begin, span.end - span.place)
            for span in segment.spans
        )
        return LedgerMap(ledger, extents)

    def _named(self, text: str) -> list[str]:
        """Return the queues of a name; raises ConfigError if there is none."""
        name = Name.parse(text)
        found = [str(queue) for queue in self._queues if name.means(queue)]
        if not found:
            raise self._unknown(f"topic={text!r}", text)
        return found

    def _queue(self, topic: str) -> Queue:
        for queue in self._queues:
            if str(queue) == topic:
                return queue
        raise self._unknown(f"topic={topic!r}", topic)

    def _unknown(self, option: str, like: str) -> NoSuchTopicError:
        names = [str(queue) for queue in self._queues]
        close = get_close_matches(like, names, _QUEUES_TOLD, cutoff=0.6)
        told = close or names[:_QUEUES_TOLD]
        there_is = f"there is {', '.join(told)}" if told else "there is none at all"
        more = f" and {len(names) - len(told)} more" if len(names) > len(told) else ""
        return NoSuchTopicError(
            f"option {option}: no tiered queue of it in {self._storage.root}; "
            f"{there_is}{more}"
        )
