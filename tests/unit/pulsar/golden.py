"""Objects that Pulsar's own broker offloaded, and what Pulsar's own client read.

Each set in `tests/golden/pulsar/` has `objects/`, as they lay in the bucket,
`metadata.json`, their user metadata by key, `expected/`, one message a line for each
topic, and `internal/`, what the broker reported of the topic.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sparkcache.testing import MemoryStorage

GOLDEN = Path(__file__).parents[2] / "golden" / "pulsar"
PRIVATE_KEY = GOLDEN / "keys" / "test-only-private.pem"


@dataclass(frozen=True)
class GoldenSet:
    """A set of golden objects: its folder, and the namespace of its topics."""

    name: str
    namespace: str

    def __str__(self) -> str:
        return self.name

    @property
    def folder(self) -> Path:
        return GOLDEN / self.name

    def topic(self, name: str) -> str:
        return f"persistent://{self.namespace}/{name}"

    @cached_property
    def storage(self) -> MemoryStorage:
        """The objects with their user metadata, which files have none of."""
        path = self.folder / "metadata.json"
        metadata = json.loads(path.read_text()) if path.exists() else {}
        storage = MemoryStorage()
        top = self.folder / "objects"
        for path in filter(Path.is_file, top.rglob("*")):
            name = str(path.relative_to(top))
            storage.put(name, path.read_bytes(), metadata.get(name))
        return storage

    def messages(self, name: str) -> list[dict[str, Any]]:
        """The messages of a topic, as Pulsar's client read them."""
        lines = (self.folder / "expected" / f"{name}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def manifest(self, name: str, form: str) -> str:
        """What the broker reported of a topic. The form is `info` or `stats`."""
        return (self.folder / "internal" / f"{name}.{form}.json").read_text()


PULSAR_4_0 = GoldenSet("broker-4.0.8", "public/golden")
PULSAR_4_2 = GoldenSet("broker-4.2.4", "public/newest")
DEPENDENT = GoldenSet("broker-4.0.8-chunks-transactions-encryption", "public/later")
STREAMING = GoldenSet("streaming-format", "public/streaming")
FILE_SYSTEM = GoldenSet("filesystem-format", "public/filesystem")
