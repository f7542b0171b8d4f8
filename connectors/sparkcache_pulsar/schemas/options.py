"""Read the schema options; a schema can have any of these forms.

    STRING                                       a primitive's name
    {"type": "record", ...}                      Avro's notation
    {"type": "AVRO", "schema": ..., ...}         as `pulsar-admin schemas get` prints
    {"version": 3, "schemaInfo": {...}}          the same, with its version
    {"type": "AVRO", "data": "...", ...}         as the admin REST interface returns
    {"fileDescriptorSet": "...", ...}            the definition of PROTOBUF_NATIVE
    a FileDescriptorSet                          in base64, or as protoc writes it

or the path of a file with one of these. The driver reads the file once, here.

Source: SchemaUtils, KeyValueSchemaInfo and ProtobufNativeSchemaData of Apache Pulsar.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from sparkcache.errors import ConfigError
from sparkcache_pulsar.schemas.decoders import decoder
from sparkcache_pulsar.schemas.notation import parse_definition
from sparkcache_pulsar.schemas.primitives import TYPES as PRIMITIVES
from sparkcache_pulsar.schemas.protobuf_files import protobuf_spec
from sparkcache_pulsar.schemas.spec import (
    AVRO,
    INLINE,
    JSON,
    KEY_VALUE,
    PROTOBUF_NATIVE,
    SEPARATED,
    Mode,
    Spec,
    ValueDecoding,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTION_NAMES = frozenset({"valueSchema", "schemaType", "messageName", "mode"})

_TYPES = PRIMITIVES | {AVRO, JSON, PROTOBUF_NATIVE, KEY_VALUE}
_UNSUPPORTED = {"PROTOBUF", "AUTO", "AUTO_CONSUME", "AUTO_PUBLISH"}
_MAX_FILE_BYTES = 16 << 20
_JSON_BEGINS = frozenset('{["')


def decoding(options: Mapping[str, str]) -> ValueDecoding | None:
    """Return how to decode values according to the options; None if not at all.

    Raises ConfigError for a schema that has no columns.
    """
    arguments = {name: options[name].strip() for name in OPTION_NAMES & options.keys()}
    text = arguments.get("valueSchema", "")
    if not text:
        for name in sorted(arguments):
            raise ConfigError(
                f"option {name}={arguments[name]!r}: needs the option valueSchema, "
                "because values are not decoded without it"
            )
        return None
    spec = _spec(_content(text), _type(arguments), arguments.get("messageName", ""))
    if arguments.get("messageName") and spec.type != PROTOBUF_NATIVE:
        raise ConfigError(
            f"option messageName={arguments['messageName']!r}: the schema is of type "
            f"{spec.type}; only PROTOBUF_NATIVE has messages"
        )
    decoder(spec)
    return ValueDecoding(spec, _mode(arguments))


def _type(arguments: Mapping[str, str]) -> str:
    type_ = arguments.get("schemaType", "").upper()
    if type_ and type_ not in _TYPES:
        raise ConfigError(
            f"option schemaType={type_!r}: must be one of {', '.join(sorted(_TYPES))}"
            f"{_HINT if type_ == 'PROTOBUF' else ''}"
        )
    return type_


_HINT = (
    "; for a PROTOBUF schema use the FileDescriptorSet that protoc --include_imports "
    "--descriptor_set_out=FILE writes, and schemaType=PROTOBUF_NATIVE"
)


def _mode(arguments: Mapping[str, str]) -> Mode:
    text = arguments.get("mode", Mode.FAILFAST)
    try:
        return Mode(text.upper())
    except ValueError:
        raise ConfigError(
            f"option mode={text!r}: must be {' or '.join(Mode)}"
        ) from None


def _content(text: str) -> bytes:
    """Return the text itself as bytes, or the content of the file that it names."""
    if text[0] in _JSON_BEGINS or text.upper() in _TYPES | _UNSUPPORTED:
        return text.encode()
    path = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    try:
        size_bytes = path.stat().st_size
        is_file = path.is_file()  # reading from a device may have no end
    except (OSError, ValueError) as error:
        with suppress(Base64Error):
            return b64decode(text, validate=True)
        raise ConfigError(
            f"option valueSchema={text[:200]!r}: neither a schema (JSON, or one of "
            f"{', '.join(sorted(PRIMITIVES))}), nor a file: {error}"
        ) from error
    if not is_file or not 0 < size_bytes <= _MAX_FILE_BYTES:
        raise ConfigError(
            f"option valueSchema: {path} must be a file of at most {_MAX_FILE_BYTES} "
            "bytes, and not empty"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"option valueSchema: {error}") from error


def _spec(content: bytes, type_: str, message: str) -> Spec:
    try:
        text = content.decode().strip()
        schema = json.loads(text) if text[:1] in _JSON_BEGINS else text
    except (ValueError, RecursionError) as error:
        if type_ in {"", PROTOBUF_NATIVE} and content[:1] == b"\x0a":
            return protobuf_spec(content, message)  # 0x0a is the tag of its first file
        raise ConfigError(f"option valueSchema: not JSON: {error}") from error
    if isinstance(schema, str) and text[:1] != '"':
        if schema.upper() in _TYPES | _UNSUPPORTED:
            return _spec_of_info({"type": schema}, type_, message)
        if content[:1] == b"\x0a":
            return protobuf_spec(content, message)
        return protobuf_spec(_base64(text), message)
    if isinstance(schema, dict) and isinstance(schema.get("schemaInfo"), dict):
        schema = schema["schemaInfo"]
    if isinstance(schema, dict) and _is_info(schema):
        return _spec_of_info(schema, type_, message)
    if isinstance(schema, dict) and "fileDescriptorSet" in schema:
        return _spec_of_definition(PROTOBUF_NATIVE, schema, message)
    return _spec_of_definition(type_ or AVRO, schema, message)


def _is_info(schema: dict[str, Any]) -> bool:
    """Return whether the type is one of Pulsar's, in upper case, and not Avro's."""
    return schema.get("type") in _TYPES | _UNSUPPORTED


def _spec_of_info(info: dict[str, Any], wanted: str, message: str) -> Spec:
    """Read a SchemaInfo."""
    type_ = str(info["type"]).upper()
    if wanted not in {"", type_}:
        raise ConfigError(
            f"option schemaType={wanted!r}: the schema itself is of type {type_}"
        )
    if type_ in _UNSUPPORTED:
        raise ConfigError(
            f"option valueSchema: values of type {type_} cannot be decoded"
            f"{_HINT if type_ == 'PROTOBUF' else ''}"
        )
    definition = info.get("schema", info.get("data", ""))
    if type_ == KEY_VALUE:
        properties = info.get("properties")
        known_properties = properties if isinstance(properties, dict) else {}
        return _pair(definition, known_properties, message)
    return _spec_of_definition(type_, definition, message)


def _pair(definition: object, properties: dict[str, str], message: str) -> Spec:
    """Read a SchemaInfo of type KEY_VALUE: two SchemaInfos, or two definitions.

    The properties state the types of definitions.
    """
    parts = _parsed(definition)
    if not isinstance(parts, dict) or not {"key", "value"} <= parts.keys():
        raise ConfigError(
            "option valueSchema: a KEY_VALUE schema must contain the schemas of key "
            "and value, as pulsar-admin schemas get prints them"
        )
    encoding = str(properties.get("kv.encoding.type") or INLINE)
    if encoding not in {INLINE, SEPARATED}:
        raise ConfigError(
            f"option valueSchema: kv.encoding.type is {encoding!r}; must be "
            f"{INLINE} or {SEPARATED}"
        )
    specs = {}
    for name in ("key", "value"):
        part = parts[name]
        if not (isinstance(part, dict) and _is_info(part)):
            type_ = properties.get(f"{name}.schema.type", "BYTES")
            part = {"type": type_, "schema": part}
        specs[name] = _spec_of_info(part, "", message)
        if specs[name].type == KEY_VALUE:
            raise ConfigError(
                f"option valueSchema: the {name} of a KEY_VALUE schema is a KEY_VALUE "
                "schema again, which cannot be decoded"
            )
    return Spec(KEY_VALUE, encoding=encoding, key=specs["key"], value=specs["value"])


def _spec_of_definition(type_: str, definition: object, message: str) -> Spec:
    if type_ in PRIMITIVES:
        return Spec(type_)
    definition = _parsed(definition)
    if type_ == PROTOBUF_NATIVE:
        if isinstance(definition, dict):
            message = message or str(definition.get("rootMessageTypeName", ""))
            definition = definition.get("fileDescriptorSet")
        return protobuf_spec(_base64(definition), message)
    if type_ == KEY_VALUE:
        return _pair(definition, {}, message)
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    parse_definition(text)
    return Spec(type_, text)


def _parsed(definition: object) -> object:
    """Parse a definition that is JSON text; return any other unchanged."""
    if not (isinstance(definition, str) and definition[:1] in _JSON_BEGINS):
        return definition
    try:
        return json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option valueSchema: not JSON: {error}") from error


def _base64(text: object) -> bytes:
    try:
        return b64decode(str(text), validate=True)
    except ValueError as error:
        raise ConfigError(
            f"option valueSchema: not a FileDescriptorSet in base64: {error}"
        ) from error
