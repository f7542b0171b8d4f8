"""How fast a core makes columns of payloads by their schema.

    .venv/bin/python tests/benchmarks/values.py --json

Each case is 1024 payloads of the same orders: 30 fields, most of their bytes in
ten texts, a tenth of what may be null is; `nested` has an array of structs and a map
more. `mb_s` is payload bytes decoded per second, in millions; `bytes` the size of a
payload. Best of 7 rounds, in which the cases alternate, after a round to warm up.
"""

from __future__ import annotations

import io
import json
import random
import time
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message_factory import GetMessageClass

from sparkcache_pulsar.schemas.decoders import decoder
from sparkcache_pulsar.schemas.protobuf_files import message_descriptor, protobuf_spec
from sparkcache_pulsar.schemas.spec import AVRO, JSON, Spec
from tests.benchmarks import record

PAYLOADS = 1024
ROUNDS = 7
PACKAGES = ("pyarrow", "numpy", "fastavro", "msgspec", "protobuf")

_random = random.Random(1)
_Types = dict[str, Any]

FLAT: _Types = {
    **{f"long_{n}": ["null", "long"] for n in range(5)},
    **{f"int_{n}": "int" for n in range(5)},
    **{f"double_{n}": ["null", "double"] for n in range(5)},
    **{f"text_{n}": ["null", "string"] for n in range(10)},
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "day": ["null", {"type": "int", "logicalType": "date"}],
    "ok": "boolean",
    "price": {"type": "double"},
    "state": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]},
}
NESTED: _Types = FLAT | {
    "lines": {
        "type": "array",
        "items": {
            "type": "record",
            "name": "Line",
            "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
        },
    },
    "tags": {"type": "map", "values": "string"},
}


def definition(types: _Types) -> Any:
    fields = [{"name": name, "type": of} for name, of in types.items()]
    return {"type": "record", "name": "Order", "fields": fields}


def _text(length: int) -> str:
    return "".join(_random.choices("abcdefghijklmnop ", k=length))


def _value(of: Any) -> Any:
    match of:
        case ["null", inner]:
            return None if _random.random() < 0.1 else _value(inner)
        case "long":
            return _random.randrange(1 << 40)
        case "int":
            return _random.randrange(1 << 20)
        case "double" | {"type": "double"}:
            return _random.random()
        case "string":
            return _text(_random.randrange(80, 115))
        case "boolean":
            return _random.random() < 0.5
        case {"logicalType": "timestamp-millis"}:
            return 1_700_000_000_000 + _random.randrange(10**9)
        case {"logicalType": "date"}:
            return _random.randrange(20_000)
        case {"symbols": symbols}:
            return _random.choice(symbols)
        case {"items": _}:
            lines = range(_random.randrange(5))
            return [{"sku": _text(12), "n": _value("int")} for _ in lines]
        case _:
            return {_text(4): _text(10) for _ in range(3)}


def _avro(types: _Types, values: list[Any]) -> list[bytes]:
    schema, payloads = fastavro.parse_schema(definition(types)), []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, value)
        payloads.append(stream.getvalue())
    return payloads


def _files() -> bytes:
    """The same orders as protobuf messages; symbols and days as numbers."""
    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    file.message_type.add(name="Line")
    file.message_type[0].field.add(name="sku", number=1, type=9, label=1)
    file.message_type[0].field.add(name="n", number=2, type=5, label=1)
    order = file.message_type.add(name="Order")
    numbers = {
        "long": FieldDescriptorProto.TYPE_INT64,
        "int": FieldDescriptorProto.TYPE_INT32,
        "double": FieldDescriptorProto.TYPE_DOUBLE,
        "string": FieldDescriptorProto.TYPE_STRING,
        "boolean": FieldDescriptorProto.TYPE_BOOL,
    }
    for number, (name, of) in enumerate(NESTED.items(), 1):
        inner = of[1] if isinstance(of, list) else of
        primitive = inner if isinstance(inner, str) else inner["type"]
        field = order.field.add(name=name, number=number, label=1)
        if primitive in {"array", "map"}:
            field.label = FieldDescriptorProto.LABEL_REPEATED
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = ".Line" if primitive == "array" else ".Order.TagsEntry"
            continue
        field.type = numbers.get(primitive, FieldDescriptorProto.TYPE_INT32)
        if isinstance(of, list):
            field.proto3_optional = True
            field.oneof_index = len(order.oneof_decl)
            order.oneof_decl.add(name=f"_{name}")
    entry = order.nested_type.add(name="TagsEntry")
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=9, label=1)
    entry.options.map_entry = True
    return FileDescriptorSet(file=[file]).SerializeToString()


def cases() -> dict[str, tuple[Spec, list[bytes]]]:
    spec = protobuf_spec(_files(), "Order")
    message: Any = GetMessageClass(message_descriptor(spec))
    encode = msgspec.json.encode
    found: dict[str, tuple[Spec, list[bytes]]] = {}
    for name, types in (("flat", FLAT), ("nested", NESTED)):
        rows = [
            {field: _value(of) for field, of in types.items()} for _ in range(PAYLOADS)
        ]
        text = json.dumps(definition(types))
        found[f"avro_{name}"] = Spec(AVRO, text), _avro(types, rows)
        found[f"json_{name}"] = Spec(JSON, text), [encode(row) for row in rows]
        for row in rows:
            row["state"] = FLAT["state"]["symbols"].index(row["state"])
        messages = [message(**row).SerializeToString() for row in rows]
        found[f"protobuf_{name}"] = spec, messages
    return found


def measure() -> dict[str, Any]:
    chosen = cases()
    decoders = {name: decoder(spec) for name, (spec, _) in chosen.items()}
    arrays = {
        name: pa.array(payloads, pa.binary()) for name, (_, payloads) in chosen.items()
    }
    sizes = {name: sum(map(len, payloads)) for name, (_, payloads) in chosen.items()}
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(ROUNDS + 1):
        for name, payloads in arrays.items():
            begun = time.perf_counter()
            decoded = decoders[name].decode(payloads)
            seconds[name].append(time.perf_counter() - begun)
            assert not decoded.faults
    return {
        "mb_s": {
            name: round(sizes[name] / min(taken[1:]) / 1e6, 1)
            for name, taken in seconds.items()
        },
        "bytes": {name: size // PAYLOADS for name, size in sizes.items()},
    }


if __name__ == "__main__":
    record.run("values", measure, PACKAGES)
