"""How fast a core makes Arrow of offloaded Pulsar blocks: split and decode together.

    .venv/bin/python tests/benchmarks/decode.py --json

Each case is a ledger of 32 MiB of values in memory, cut into runs of 1 MiB stored and
batches of 1 MiB. Values are all different and compress to about half. `mb_s` is value
bytes decoded per second, in millions; `msgs_s` messages per second. Median of 5
rounds, in which the cases alternate, after a round to warm up.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from sparkcache.testing import MemoryStorage, decoded_runs
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Codec, ledger_objects, synthetic_entries
from tests.benchmarks import record

TOPIC = "persistent://public/default/benchmark"
VALUE_BYTES = 32 << 20
ROUNDS = 5
PACKAGES = ("pyarrow", "numpy", "cramjam", "google-crc32c")


@dataclass(frozen=True)
class Case:
    """A kind of topic."""

    codec: Codec = Codec.NONE
    value_bytes: int = 1024
    batch_bytes: int = 128 << 10
    keyed: bool = False

    def storage(self) -> MemoryStorage:
        storage = MemoryStorage()
        entries = synthetic_entries(
            VALUE_BYTES,
            value_bytes=self.value_bytes,
            batch_bytes=self.batch_bytes,
            codec=self.codec,
            keyed=self.keyed,
        )
        for stored in ledger_objects(TOPIC, 1, list(entries)):
            storage.put(stored.key, stored.data, stored.metadata)
        return storage


CASES = {
    "none": Case(),
    "lz4": Case(Codec.LZ4),
    "zlib": Case(Codec.ZLIB),
    "zstd": Case(Codec.ZSTD),
    "snappy": Case(Codec.SNAPPY),
    "single_1k": Case(batch_bytes=0),
    "batched_100b": Case(value_bytes=100),
    "keyed_1k": Case(Codec.LZ4, keyed=True),
    "keyed_100b": Case(Codec.LZ4, value_bytes=100, keyed=True),
}


def read(storage: MemoryStorage) -> tuple[float, int, int]:
    """Return seconds, messages and value bytes of one pass over a topic."""
    messages = value_bytes = 0
    started = time.perf_counter()
    for _, decoded in decoded_runs(PulsarConnector(), storage, TOPIC):
        for batch in decoded.batches:
            messages += len(batch)
            value_bytes += batch.column("value").nbytes - 4 * (len(batch) + 1)
        if decoded.losses:
            raise SystemExit("the benchmark's topic was not read without losses")
    return time.perf_counter() - started, messages, value_bytes


def measure() -> dict[str, dict[str, float]]:
    storages = {name: case.storage() for name, case in CASES.items()}
    rounds = [
        {name: read(storage) for name, storage in storages.items()}
        for _ in range(ROUNDS + 1)
    ][1:]
    result: dict[str, dict[str, float]] = {"mb_s": {}, "msgs_s": {}, "stored_ratio": {}}
    for name, storage in storages.items():
        seconds = statistics.median(one[name][0] for one in rounds)
        _, messages, size = rounds[0][name]
        stored = max(object_id.size_bytes for object_id in storage.list())
        result["mb_s"][name] = round(size / seconds / 1e6, 1)
        result["msgs_s"][name] = round(messages / seconds)
        result["stored_ratio"][name] = round(size / stored, 2)
    return result


if __name__ == "__main__":
    record.run("decode", measure, PACKAGES)
