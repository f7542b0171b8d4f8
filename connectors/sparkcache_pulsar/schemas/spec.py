"""A schema and a mode, in the form in which they are shipped with ledgers."""

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
"""Maximum size of the text, because every ledger of a scan carries it."""

_COMPRESSED: Final = "zlib:"
_LONG_BYTES = 1 << 10


class Mode(StrEnum):
    """How to treat a value that does not decode: as an error, or as null.

    The same as in Spark's `from_avro`.
    """

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema of Pulsar.

    Attributes:
        type: Pulsar's name of the kind of schema, such as AVRO or INT32.
        definition: Avro's JSON for AVRO and JSON, a FileDescriptorSet in base64 for
            PROTOBUF_NATIVE, otherwise empty.
        message: Full name of the root message; only for PROTOBUF_NATIVE.
        encoding: INLINE or SEPARATED; only for KEY_VALUE.
        key: Schema of the keys; only for KEY_VALUE.
        value: Schema of the values; only for KEY_VALUE.

    """

    type: str
    definition: str = ""
    message: str = ""
    encoding: str = ""
    key: Spec | None = None
    value: Spec | None = None


class Decoding(msgspec.Struct, frozen=True):
    """The schema and the mode, which together determine the rows of values."""

    spec: Spec
    mode: Mode

    def to_text(self) -> str:
        """Return the text for `from_text`; equal for equal schemas and modes."""
        data = msgspec.json.encode(self)
        if len(data) <= _LONG_BYTES:
            return data.decode()
        text = _COMPRESSED + b64encode(zlib.compress(data, 9)).decode()
        if len(text) > MAX_TEXT_BYTES:
            raise ConfigError(
                f"option valueSchema: the schema has {len(data)} bytes, {len(text)} "
                f"when compressed; must have at most {MAX_TEXT_BYTES} compressed, "
                "because every ledger carries it"
            )
        return text

    @classmethod
    def from_text(cls, text: str) -> Decoding:
        """Parse the text that `to_text` returned."""
        if text.startswith(_COMPRESSED):
            text = zlib.decompress(b64decode(text.removeprefix(_COMPRESSED))).decode()
        return msgspec.json.decode(text, type=cls)
