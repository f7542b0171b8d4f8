"""A schema and a mode, in the form in which they are shipped with ledgers."""

from __future__ import annotations

from enum import StrEnum

import msgspec

AVRO, JSON, PROTOBUF_NATIVE = "AVRO", "JSON", "PROTOBUF_NATIVE"
KEY_VALUE = "KEY_VALUE"
INLINE, SEPARATED = "INLINE", "SEPARATED"

MAX_TEXT_BYTES = 256 << 10
"""Maximum size of a schema's text, because every ledger of a scan carries it."""


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


class ValueDecoding(msgspec.Struct, frozen=True):
    """The schema and the mode, which together determine the rows of values."""

    spec: Spec
    mode: Mode
