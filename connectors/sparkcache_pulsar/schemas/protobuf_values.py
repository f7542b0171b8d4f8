"""Values of PROTOBUF_NATIVE schemas: one message each, of proto2 or proto3.

The columns are those of Spark's `from_protobuf` with two exceptions: unsigned numbers
have a type that holds them all, and a field that is always present, as those of proto3
are unless they say `optional`, is never null. A field that is not set is null, or what
its proto2 definition has as default. A number that an enum has no name for is null: a
proto2 parser, too, takes it for a field that is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_pulsar.schemas import shapes
from sparkcache_pulsar.schemas.decoded import Decoded, decode_each
from sparkcache_pulsar.schemas.definitions import MAX_DEPTH, MAX_NODES
from sparkcache_pulsar.schemas.protobuf_files import message_descriptor
from sparkcache_pulsar.schemas.shapes import Shape, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import (
        Descriptor,
        EnumDescriptor,
        FieldDescriptor,
    )
    from google.protobuf.timestamp_pb2 import Timestamp

    from sparkcache_pulsar.schemas.spec import Spec

    _Get = Callable[[Any], object]

_TIMESTAMP = "google.protobuf.Timestamp"
_MICROS = 1_000_000

# By the numbers of FieldDescriptorProto.Type; sint, fixed and sfixed are as int.
_INT32, _INT64, _UINT32 = pa.int32(), pa.int64(), pa.int64()
_UINT64 = pa.decimal128(20, 0)
_SCALARS = {
    1: pa.float64(), 2: pa.float32(), 3: _INT64, 4: _UINT64, 5: _INT32, 6: _UINT64,
    7: _UINT32, 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: _UINT32,
    15: _INT32, 16: _INT64, 17: _INT32, 18: _INT64,
}  # fmt: skip


class ProtobufDecoder:
    """Decodes messages of one type; raises ConfigError if it has no columns."""

    def __init__(self, spec: Spec) -> None:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        descriptor = message_descriptor(spec)
        self._message: Any = GetMessageClass(descriptor)
        self._malformed = (DecodeError, ValueError)
        self._shape, self._get = _Reader().message(descriptor, ())
        self.expected = f"a message {spec.message}"

    def __repr__(self) -> str:
        return f"ProtobufDecoder({self.type})"

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        return self._shape.shown

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode payloads."""
        return decode_each(payloads, self._shape, self._value, self._malformed)

    def _value(self, payload: bytes) -> object:
        message = self._message.FromString(payload)
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise ValueError(f"one without {missing}")
        return self._get(message)


class _Reader:
    """Makes, of descriptors, shapes and what reads messages to Python values."""

    def __init__(self) -> None:
        self._nodes = 0

    def message(self, of: Descriptor, path: tuple[str, ...]) -> tuple[Shape, _Get]:
        if of.full_name == _TIMESTAMP:
            return shapes.INSTANT_MICROS, _micros
        if of.full_name in path:
            raise ConfigError(
                f"option valueSchema: the message {of.full_name} contains itself"
            )
        self._nodes += 1 + len(of.fields)
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise ConfigError(
                f"option valueSchema: the message {of.full_name} makes it more than "
                f"{MAX_NODES} columns, or {MAX_DEPTH} levels"
            )
        fields, gets = [], []
        for field in of.fields:
            shape, get = self._field(field, (*path, of.full_name))
            fields.append((field.name, shape))
            gets.append((field.name, get))
        return shapes.record(fields), lambda one: {name: get(one) for name, get in gets}

    def _field(
        self, field: FieldDescriptor, path: tuple[str, ...]
    ) -> tuple[Shape, _Get]:
        name, of = field.name, field.message_type
        if of is not None and of.GetOptions().map_entry:
            return self._map(field, of, path)
        shape, read = self._one(field, path)
        if field.is_repeated:
            if read is None:
                return shapes.listed(shape), lambda one: list(getattr(one, name))
            return (
                shapes.listed(shape),
                lambda one: [read(item) for item in getattr(one, name)],
            )
        if field.has_presence and not field.has_default_value:
            return shape, _get_present(name, read)
        return shape, _get(name, read)

    def _map(
        self, field: FieldDescriptor, entry: Descriptor, path: tuple[str, ...]
    ) -> tuple[Shape, _Get]:
        name = field.name
        key = _SCALARS[entry.fields_by_name["key"].type]
        shape, read = self._one(entry.fields_by_name["value"], path)
        mapped = shapes.mapped(shape, key)
        if read is None:
            return mapped, lambda one: list(getattr(one, name).items())
        return mapped, lambda one: [
            (key, read(value)) for key, value in getattr(one, name).items()
        ]

    def _one(
        self, field: FieldDescriptor, path: tuple[str, ...]
    ) -> tuple[Shape, _Get | None]:
        """Return the shape of one value, and what makes it; None if it is there."""
        if field.message_type is not None:
            return self.message(field.message_type, path)
        if field.enum_type is not None:
            return plain(pa.string()), _names(field.enum_type)
        return plain(_SCALARS[field.type]), None


def _get(name: str, read: _Get | None) -> _Get:
    if read is None:
        return lambda one: getattr(one, name)
    return lambda one: read(getattr(one, name))


def _get_present(name: str, read: _Get | None) -> _Get:
    get = _get(name, read)
    return lambda one: get(one) if one.HasField(name) else None


def _names(of: EnumDescriptor) -> _Get:
    return {value.number: value.name for value in reversed(of.values)}.get


def _micros(timestamp: Timestamp) -> int:
    return timestamp.seconds * _MICROS + timestamp.nanos // 1_000
