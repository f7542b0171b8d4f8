"""Objects that Pulsar's own broker offloaded, and what Pulsar's own client read.

`tests/golden/pulsar/` has `objects/`, as they lay in the bucket, `metadata.json`, their
user metadata by key, and `expected/`, one message a line for each topic. What has
`-later` in its name is of chunks, transactions and encryption; `-streaming` and
`-filesystem` are other formats; `-newest` is of a newer broker and client.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from sparkcache.testing import MemoryStorage

GOLDEN = Path(__file__).parents[2] / "golden" / "pulsar"
PRIVATE_KEY = GOLDEN / "keys" / "test-only-private.pem"


@cache
def bucket(suffix: str = "") -> MemoryStorage:
    metadata = json.loads((GOLDEN / f"metadata{suffix}.json").read_text())
    storage = MemoryStorage()
    for path in (GOLDEN / f"objects{suffix}").iterdir():
        storage.put(path.name, path.read_bytes(), metadata[path.name])
    return storage
