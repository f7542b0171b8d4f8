"""Select the decoder of a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache_pulsar.schemas.avro_values import AvroDecoder
from sparkcache_pulsar.schemas.json_values import JsonDecoder
from sparkcache_pulsar.schemas.notation import parse_definition
from sparkcache_pulsar.schemas.pairs import PairDecoder
from sparkcache_pulsar.schemas.primitives import TYPES, primitive
from sparkcache_pulsar.schemas.protobuf_values import ProtobufDecoder
from sparkcache_pulsar.schemas.spec import AVRO, JSON, PROTOBUF_NATIVE, Spec

if TYPE_CHECKING:
    from sparkcache_pulsar.schemas.decoded import Decoder


def decoder(spec: Spec) -> Decoder | PairDecoder:
    """Return the decoder of a schema; raises ConfigError if there is none."""
    if spec.key is not None and spec.value is not None:
        return PairDecoder(_single(spec.key), _single(spec.value))
    return _single(spec)


def _single(spec: Spec) -> Decoder:
    if spec.type == AVRO:
        return AvroDecoder(parse_definition(spec.definition))
    if spec.type == JSON:
        return JsonDecoder(parse_definition(spec.definition))
    if spec.type == PROTOBUF_NATIVE:
        return ProtobufDecoder(spec)
    if spec.type in TYPES:
        return primitive(spec.type)
    raise ConfigError(f"option valueSchema: values of {spec.type} cannot be decoded")
