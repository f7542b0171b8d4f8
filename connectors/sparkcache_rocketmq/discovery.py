"""Find the queues of topics, and the objects of their records, in the storage.

    flat files      the stored objects of each queue        flat_files.py
    survey          the queue offsets in each object        survey.py

The objects are listed once; a queue is surveyed when its snapshot is requested.
"""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import NoSuchTopicError
from sparkcache.model import Extent, Ledger, qualified_topic
from sparkcache_rocketmq.extents import EXTENT_BYTES
from sparkcache_rocketmq.flat_files import FlatFile, QueueFiles, read_queues
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

_MAX_QUEUES_NAMED = 10
_log = logging.getLogger(__name__)


class Catalog(connectors.Catalog):
    """Queues that brokers have tiered; see `sparkcache.connector.Catalog`.

    Args:
        storage: The storage to list.
        options: The options of a scan.
        decoding: How records are decoded, stored with each ledger.
        extent_bytes: Maximum size of an extent.

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
        """Return the selected queues; raises ConfigError."""
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
        result = self._survey(queue, self._queues[queue])
        if result.losses:
            # The consume queue may have been listed later than the commit log that it
            # refers to, and records that expired in between are no loss.
            files = self._listed_again(queue, self._queues[queue])
            result = self._survey(queue, files)
        qualified = qualified_topic(topic, self._storage.root)
        _log.info("%s: %r", qualified, result)
        maps = [
            self._ledger_map(qualified, queue, segment) for segment in result.segments
        ]
        return Snapshot(tuple(maps), tuple(result.losses))

    def _survey(self, queue: Queue, files: QueueFiles) -> Survey:
        return survey(self._storage, queue.id, files, self._extent_bytes)

    def _listed_again(self, queue: Queue, before: QueueFiles) -> QueueFiles:
        """List again; return the queue's files, its consume queue up to its old end."""
        self._queues = read_queues(self._storage, self._is_deleted)
        files = self._queues.setdefault(queue, QueueFiles(FlatFile(), FlatFile()))
        consume_queue = files.consume_queue.up_to(before.consume_queue.end)
        return QueueFiles(files.commit_log, consume_queue)

    def _ledger_map(self, topic: str, queue: Queue, segment: Segment) -> LedgerMap:
        decoding = with_generation(segment.beginning, self._decoding)
        ledger = Ledger(CONNECTOR, topic, queue.id, segment.piece.object, decoding)
        begin = segment.piece.start
        extents = tuple(
            Extent(span.first, span.last, span.start - begin, span.end - span.start)
            for span in segment.spans
        )
        return LedgerMap(ledger, extents)

    def _named(self, text: str) -> list[str]:
        """Return the queues that a name covers; raises ConfigError if none exists."""
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

    def _unknown(self, option: str, requested: str) -> NoSuchTopicError:
        names = [str(queue) for queue in self._queues]
        close = get_close_matches(requested, names, _MAX_QUEUES_NAMED, cutoff=0.6)
        shown = close or names[:_MAX_QUEUES_NAMED]
        tiered = f"tiered queues: {', '.join(shown)}" if shown else "no queue is tiered"
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        return NoSuchTopicError(
            f"option {option}: matches no tiered queue in {self._storage.root}; "
            f"{tiered}{more}"
        )
