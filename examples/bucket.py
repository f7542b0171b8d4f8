"""The bucket of the examples: stores a topic, and counts the bytes that are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import shop

from sparkcache.testing.s3_server import ObjectCount

if TYPE_CHECKING:
    from sparkcache.testing.s3_server import S3Server

MIB = 1 << 20
BUCKET = "offload-bucket"
URL = f"s3://{BUCKET}"


def offload(
    server: S3Server, size_bytes: int, ledgers: range, topic: str = shop.TOPIC
) -> tuple[int, int]:
    """Store ledgers of a topic in the bucket; return their bytes and messages."""
    data_bytes = messages = 0
    for stored, count in shop.offloaded(topic, size_bytes, ledgers):
        server.put(BUCKET, stored.key, stored.data, stored.metadata)
        data_bytes += len(stored.data) if count else 0
        messages += count
    return data_bytes, messages


def sent(server: S3Server) -> ObjectCount:
    """Return the counts of reads of ledgers so far, without indexes and listings."""
    total = ObjectCount()
    for name, count in server.counts().items():
        if not name.endswith(("/", "-index")):
            total.gets += count.gets
            total.sent_bytes += count.sent_bytes
    return total
