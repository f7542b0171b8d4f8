"""The definition of a protobuf message: a FileDescriptorSet and the message's name.

Source: ProtobufNativeSchemaUtils of Apache Pulsar, which uses the same set as
`protoc --include_imports --descriptor_set_out` writes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache_pulsar.schemas.spec import PROTOBUF_NATIVE, Spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

_GOOGLE_PREFIX = "google/protobuf/"


def protobuf_spec(data: bytes, message: str) -> Spec:
    """Return the spec of a message; raises ConfigError.

    The spec contains only the files that the message needs, without comments, so that
    equal messages have equal specs. If the set has only one message, `message` may be
    empty.
    """
    _require_protobuf()
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(data).file}
    except DecodeError as error:
        raise ConfigError(
            f"option valueSchema: not a FileDescriptorSet: {error}; protoc "
            "--include_imports --descriptor_set_out=FILE writes one"
        ) from error
    file_of_message = {
        name: file.name for file in files.values() for name in _messages(file)
    }
    root = message or _only(file_of_message)
    if root not in file_of_message:
        close = get_close_matches(root, file_of_message) or sorted(file_of_message)[:10]
        raise ConfigError(
            f"option messageName={root!r}: the FileDescriptorSet has no such message; "
            f"it has {', '.join(close) or 'none'}"
        )
    needed = FileDescriptorSet()
    for file in _in_order(file_of_message[root], files, []):
        added = needed.file.add()
        added.CopyFrom(file)
        added.ClearField("source_code_info")
    text = b64encode(needed.SerializeToString(deterministic=True)).decode()
    spec = Spec(PROTOBUF_NATIVE, text, root)
    message_descriptor(spec)
    return spec


def message_descriptor(spec: Spec) -> Descriptor:
    """Return the root message of a spec; raises ConfigError."""
    _require_protobuf()
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(b64decode(spec.definition)).file:
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindMessageTypeByName(spec.message)
    except (TypeError, KeyError) as error:
        raise ConfigError(f"option valueSchema: {error}") from error


def _require_protobuf() -> None:
    try:
        from google.protobuf import descriptor_pb2  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "option valueSchema: to decode PROTOBUF_NATIVE, pip install "
            "'sparkcache[protobuf]'"
        ) from error


def _messages(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the full names of all messages of a file."""

    def nested(messages: Iterable[DescriptorProto], scope: str) -> Iterator[str]:
        for message in messages:
            if not message.options.map_entry:
                yield scope + message.name
                yield from nested(message.nested_type, f"{scope}{message.name}.")

    return nested(file.message_type, f"{file.package}." if file.package else "")


def _only(file_of_message: dict[str, str]) -> str:
    names = [
        name
        for name, file in file_of_message.items()
        if not file.startswith(_GOOGLE_PREFIX)
    ]
    if len(names) != 1:
        raise ConfigError(
            "option messageName is missing: it must name the message of the values; "
            f"the FileDescriptorSet has {', '.join(sorted(names)[:10]) or 'none'}"
        )
    return names[0]


def _in_order(
    name: str, files: dict[str, FileDescriptorProto], seen: list[str]
) -> Iterator[FileDescriptorProto]:
    """Yield the direct and indirect imports of a file, then the file itself."""
    if name not in files:
        raise ConfigError(
            f"option valueSchema: {name} is imported but not in the FileDescriptorSet; "
            "protoc --include_imports adds it"
        )
    seen.append(name)
    for imported in files[name].dependency:
        if imported not in seen:
            yield from _in_order(imported, files, seen)
    yield files[name]
