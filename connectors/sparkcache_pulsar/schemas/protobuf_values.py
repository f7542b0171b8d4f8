"""Decode values of PROTOBUF_NATIVE schemas: one message each, of proto2 or proto3.

The columns are those of Spark's `from_protobuf` with two exceptions: unsigned numbers
have a type that holds all their values, and a field that is always present is never
null, such as those of proto3 without `optional`. A field that is not set is null, or
the default of its proto2 definition. An enum's number without a name is null: a proto2
parser also treats it as a missing field.
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

# By number of FieldDescriptorProto.Type; sint, fixed and sfixed have the types of int.
_INT32, _INT64, _UINT32 = pa.int32(), pa.int64(), pa.int64()
_UINT64 = pa.decimal128(20, 0)
_SCALARS = {
    1: pa.float64(), 2: pa.float32(), 3: _INT64, 4: _UINT64, 5: _INT32, 6: _UINT64,
    7: _UINT32, 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: _UINT32,
    15: _INT32, 16: _INT64, 17: _INT32, 18: _INT64,
}  # fmt: skip


class ProtobufDecoder:
    """Decoder of messages of one type; raises ConfigError if it has no columns."""

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
            raise ValueError(f"a message without {missing}")
        return self._get(message)


class _Reader:
    """Builds shapes from descriptors, and functions that read messages to values."""

    def __init__(self) -> None:
        self._nodes = 0

    def message(
        self, descriptor: Descriptor, path: tuple[str, ...]
    ) -> tuple[Shape, _Get]:
        if descriptor.full_name == _TIMESTAMP:
            return shapes.INSTANT_MICROS, _micros
        if descriptor.full_name in path:
            raise ConfigError(
                f"option valueSchema: the message {descriptor.full_name} contains "
                "itself"
            )
        self._nodes += 1 + len(descriptor.fields)
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise ConfigError(
                f"option valueSchema: with the message {descriptor.full_name}, the "
                f"schema has more than {MAX_NODES} columns, or {MAX_DEPTH} levels"
            )
        fields, gets = [], []
        for field in descriptor.fields:
            shape, get = self._field(field, (*path, descriptor.full_name))
            fields.append((field.name, shape))
            gets.append((field.name, get))
        return shapes.record(fields), lambda message: {
            name: get(message) for name, get in gets
        }

    def _field(
        self, field: FieldDescriptor, path: tuple[str, ...]
    ) -> tuple[Shape, _Get]:
        name, descriptor = field.name, field.message_type
        if descriptor is not None and descriptor.GetOptions().map_entry:
            return self._map(field, descriptor, path)
        shape, read = self._single(field, path)
        if field.is_repeated:
            if read is None:
                return (
                    shapes.listed(shape),
                    lambda message: list(getattr(message, name)),
                )
            return (
                shapes.listed(shape),
                lambda message: [read(item) for item in getattr(message, name)],
            )
        if field.has_presence and not field.has_default_value:
            return shape, _get_present(name, read)
        return shape, _get(name, read)

    def _map(
        self, field: FieldDescriptor, entry: Descriptor, path: tuple[str, ...]
    ) -> tuple[Shape, _Get]:
        name = field.name
        key = _SCALARS[entry.fields_by_name["key"].type]
        shape, read = self._single(entry.fields_by_name["value"], path)
        mapped = shapes.mapped(shape, key)
        if read is None:
            return mapped, lambda message: list(getattr(message, name).items())
        return mapped, lambda message: [
            (key, read(value)) for key, value in getattr(message, name).items()
        ]

    def _single(
        self, field: FieldDescriptor, path: tuple[str, ...]
    ) -> tuple[Shape, _Get | None]:
        """Return the shape of one value, and its conversion; None if not needed."""
        if field.message_type is not None:
            return self.message(field.message_type, path)
        if field.enum_type is not None:
            return plain(pa.string()), _names(field.enum_type)
        return plain(_SCALARS[field.type]), None


def _get(name: str, read: _Get | None) -> _Get:
    if read is None:
        return lambda message: getattr(message, name)
    return lambda message: read(getattr(message, name))


def _get_present(name: str, read: _Get | None) -> _Get:
    get = _get(name, read)
    return lambda message: get(message) if message.HasField(name) else None


def _names(descriptor: EnumDescriptor) -> _Get:
    return {value.number: value.name for value in reversed(descriptor.values)}.get


def _micros(timestamp: Timestamp) -> int:
    return timestamp.seconds * _MICROS + timestamp.nanos // 1_000
