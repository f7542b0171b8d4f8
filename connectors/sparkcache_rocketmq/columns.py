"""The columns of messages in Spark."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache import arrays
from sparkcache.arrays import Ranges

if TYPE_CHECKING:
    from sparkcache.arrays import Ints
    from sparkcache_rocketmq.bodies import Messages
    from sparkcache_rocketmq.names import Queue
    from sparkcache_rocketmq.records import Records

QUEUE_ID, QUEUE_OFFSET = "__queueId", "__queueOffset"
STORE_TIME, TAGS = "__storeTimestamp", "__tags"

SCHEMA = pa.schema(
    [
        ("__topic", pa.string()),
        ("__broker", pa.string()),
        (QUEUE_ID, pa.int64()),
        (QUEUE_OFFSET, pa.int64()),
        (TAGS, pa.string()),
        ("__keys", pa.string()),
        ("__uniqKey", pa.string()),
        ("__properties", pa.map_(pa.string(), pa.string())),
        ("__flag", pa.int32()),
        ("__bornTimestamp", arrays.TIMESTAMP),
        (STORE_TIME, arrays.TIMESTAMP),
        ("__bornHost", pa.string()),
        ("__storeHost", pa.string()),
        ("__reconsumeTimes", pa.int32()),
        ("value", pa.binary()),
    ]
)

_PORT_BYTES = 4
_IPV4_BYTES = 4 + _PORT_BYTES


def batch(queue: Queue, records: Records, messages: Messages) -> pa.RecordBatch:
    """Return messages as rows."""
    rows, lane = len(messages.lane), messages.lane
    properties = messages.properties
    columns = [
        arrays.constant(queue.topic, pa.string(), rows),
        arrays.constant(queue.broker, pa.string(), rows),
        arrays.constant(queue.id, pa.int64(), rows),
        arrays.int64(messages.offset),
        properties.values("TAGS"),
        properties.values("KEYS"),
        properties.values("UNIQ_KEY"),
        properties.maps(),
        arrays.int32(messages.flag),
        arrays.timestamp(records.int64(records.start + 40)[lane]),
        arrays.timestamp(records.int64(records.store_time)[lane]),
        _hosts(records, records.born_host, records.store_time, lane),
        _hosts(records, records.store_host, records.body - 16, lane),
        arrays.int32(records.int32(records.body - 16)[lane]),
        arrays.binary(messages.buffer, messages.value),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _hosts(records: Records, start: Ints, end: Ints, lane: Ints) -> pa.Array:
    """Return hosts as `ip:port`; each distinct host is formatted once."""
    if len(start) and (end - start == _IPV4_BYTES).all():
        stored_hosts = records.int64(start)
        if (stored_hosts == stored_hosts[0]).all():
            host = records.buffer[start[0] : end[0]].tobytes()
            return arrays.constant(_host(host), pa.string(), len(lane))
    everywhere = np.ones(len(start), np.bool_)
    stored = arrays.binary(records.buffer, Ranges(start, end - start, everywhere))
    encoded = stored.dictionary_encode()
    texts = pa.array(map(_host, encoded.dictionary.to_pylist()), pa.string())
    if len(texts) == 1:
        return arrays.constant(texts[0].as_py(), pa.string(), len(lane))
    return texts.take(encoded.indices.take(pa.array(lane)))


def _host(stored: bytes) -> str:
    address = ip_address(stored[:-_PORT_BYTES])
    port = int.from_bytes(stored[-_PORT_BYTES:], "big", signed=True)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"
