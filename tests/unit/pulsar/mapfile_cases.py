"""Ledgers of twenty entries in all formats of MapFiles, and what is read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.testing import MemoryStorage, read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.mapfile import MapFile, read_map_file
from sparkcache_pulsar.testing import Entry, Message

from .mapfiles import Format, map_file
from .topics import TOPIC

if TYPE_CHECKING:
    from sparkcache.model import Loss

CONNECTOR = PulsarConnector()
LENIENT = {"failOnDataLoss": "false"}
ENTRIES = [
    Entry((Message(f"value {number} ".encode() * number),)).encode()
    for number in range(20)
]
VALUES = [f"value {number} ".encode() * number for number in range(20)]
FORMATS = [
    Format("records"),
    Format("records", sync_every=1),
    Format("record"),
    Format("record", sync_every=3),
    Format("record", "ZStandard"),
    Format("block"),
    Format("block", per_block=1),
    Format("block", "ZStandard", per_block=100),
]


def read(storage: MemoryStorage, run_bytes: int = 1) -> tuple[list[bytes], list[Loss]]:
    rows, losses = read_topic(CONNECTOR, storage, TOPIC, LENIENT, run_bytes=run_bytes)
    return [row["value"] for row in rows], losses


def one_file(storage: MemoryStorage) -> MapFile | None:
    ids = {object_id.uri.rpartition("/")[2]: object_id for object_id in storage.list()}
    return read_map_file(storage, ids["index"], ids["data"])


DATA, INDEX = map_file(ENTRIES, Format("record"))
