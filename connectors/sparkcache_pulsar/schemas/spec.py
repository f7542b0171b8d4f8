"""A schema and a mode, in the one form in which they travel with ledgers."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from enum import StrEnum
from typing import Final

import msgspec

from sparkcache.errors import ConfigError

AVRO, JSON, PROTOBUF_NATIVE = "AVRO", "JSON", "PROTOBUF_NATIVE"
KEY_VALUE = "KEY_VALUE"
INLINE, SEPARATED = "INLINE", "SEPARATED"

MAX_TEXT_BYTES = 256 << 10
"""Every ledger of a scan carries the text, so a scan of many must stay sendable."""

_COMPRESSED: Final = "zlib:"
_LONG_BYTES = 1 << 10


class Mode(StrEnum):
    """What becomes of a value that does not decode.

    As Spark's `from_avro` has it: an error, or null.
    """

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema as Pulsar knows it.

    Attributes:
        type: Pulsar's name of the kind of schema, such as AVRO or INT32.
        definition: Avro's JSON for AVRO and JSON, a FileDescriptorSet in base64 for
            PROTOBUF_NATIVE, otherwise nothing.
        message: Full name of the root message; for PROTOBUF_NATIVE alone.
        encoding: INLINE or SEPARATED; for KEY_VALUE alone.
        key: Schema of the keys; for KEY_VALUE alone.
        value: Schema of the values; for KEY_VALUE alone.

    """

    type: str
    definition: str = ""
    message: str = ""
    encoding: str = ""
    key: Spec | None = None
    value: Spec | None = None


class Decoding(msgspec.Struct, frozen=True):
    """What decides over the rows that values become."""

    spec: Spec
    mode: Mode

    def to_text(self) -> str:
        """Return what `from_text` takes; equal for equal schemas and modes."""
        data = msgspec.json.encode(self)
        if len(data) <= _LONG_BYTES:
            return data.decode()
        text = _COMPRESSED + b64encode(zlib.compress(data, 9)).decode()
        if len(text) > MAX_TEXT_BYTES:
            raise ConfigError(
                f"option valueSchema: a schema of {len(data)} bytes, {len(text)} when "
                f"compressed; at most {MAX_TEXT_BYTES} can travel with every ledger"
            )
        return text

    @classmethod
    def from_text(cls, text: str) -> Decoding:
        """Read what `to_text` returned."""
        if text.startswith(_COMPRESSED):
            text = zlib.decompress(b64decode(text.removeprefix(_COMPRESSED))).decode()
        return msgspec.json.decode(text, type=cls)
