"""The definition of a protobuf message: a FileDescriptorSet and the message's name.

Source: ProtobufNativeSchemaUtils of Apache Pulsar, whose set is what
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

_OF_GOOGLE = "google/protobuf/"


def protobuf_spec(data: bytes, message: str) -> Spec:
    """Return the spec of a message; raises ConfigError.

    It has only those files of the set that the message needs, without comments, so that
    equal messages have equal specs. If the set has one message alone then `message` may
    be empty.
    """
    _require_protobuf()
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(data).file}
    except DecodeError as error:
        raise ConfigError(
            f"option valueSchema: no FileDescriptorSet: {error}; protoc "
            "--include_imports --descriptor_set_out=FILE writes one"
        ) from error
    of_messages = {
        name: file.name for file in files.values() for name in _messages(file)
    }
    root = message or _only(of_messages)
    if root not in of_messages:
        close = get_close_matches(root, of_messages) or sorted(of_messages)[:10]
        raise ConfigError(
            f"option messageName={root!r}: there is no such message; there is "
            f"{', '.join(close) or 'none at all'}"
        )
    needed = FileDescriptorSet()
    for file in _in_order(of_messages[root], files, []):
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

    def below(messages: Iterable[DescriptorProto], scope: str) -> Iterator[str]:
        for one in messages:
            if not one.options.map_entry:
                yield scope + one.name
                yield from below(one.nested_type, f"{scope}{one.name}.")

    return below(file.message_type, f"{file.package}." if file.package else "")


def _only(of_messages: dict[str, str]) -> str:
    mine = [
        name for name, file in of_messages.items() if not file.startswith(_OF_GOOGLE)
    ]
    if len(mine) != 1:
        raise ConfigError(
            "option messageName is missing: which of the messages are values? There "
            f"is {', '.join(sorted(mine)[:10]) or 'none at all'}"
        )
    return mine[0]


def _in_order(
    name: str, files: dict[str, FileDescriptorProto], seen: list[str]
) -> Iterator[FileDescriptorProto]:
    """Yield what a file imports, and what that imports, before the file itself."""
    if name not in files:
        raise ConfigError(
            f"option valueSchema: {name} is imported and not in the FileDescriptorSet; "
            "protoc --include_imports adds it"
        )
    seen.append(name)
    for imported in files[name].dependency:
        if imported not in seen:
            yield from _in_order(imported, files, seen)
    yield files[name]
