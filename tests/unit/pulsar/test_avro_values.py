"""What fastavro writes is read; what nobody wrote is refused."""

from __future__ import annotations

import json
import time
from io import BytesIO
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from sparkcache.errors import ConfigError
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.schemas import avro_lanes
from sparkcache_pulsar.schemas.decoded import Decoded
from sparkcache_pulsar.schemas.decoders import decoder
from sparkcache_pulsar.schemas.definitions import MAX_DEPTH
from sparkcache_pulsar.schemas.spec import AVRO, Spec
from tests.effort import tries

from .kinds import Kind, flat_records, kinds, records
from .spark_schema import as_spark_has_it
from .topics import read_values

fastavro = pytest.importorskip("fastavro")

CONNECTOR = PulsarConnector()


def written(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decode(schema: Any, *payloads: bytes | None) -> Decoded:
    found = decoder(Spec(AVRO, json.dumps(schema))).decode(
        pa.array(payloads, pa.binary())
    )
    found.array.validate(full=True)
    return found


@pytest.fixture(params=["side by side", "one by one"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How data with arrays are read; without this, both."""
    if request.param == "side by side":
        monkeypatch.setattr(avro_lanes, "FEW", 0)
    else:
        monkeypatch.setattr(avro_lanes, "FEW_TURNS", 0)


@settings(
    max_examples=tries(50),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(records | flat_records | kinds, st.data())
def test_what_is_written_is_read(kind: Kind, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | kind.values, min_size=1, max_size=6))
    payloads = [value and written(kind.schema, value[0]) for value in values]
    rows = read_values(payloads, {"valueSchema": json.dumps(kind.schema)})
    assert rows == [value and value[2] for value in values]


@given(kinds)
def test_columns_are_what_spark_takes(kind: Kind) -> None:
    decoding = CONNECTOR.decoding(
        {"valueSchema": json.dumps(kind.schema), "mode": "permissive"}
    )
    schema = CONNECTOR.schema(decoding)
    assert as_spark_has_it(schema).equals(schema)


@settings(
    max_examples=tries(50),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(records | flat_records, st.data())
def test_damage_does_no_harm(kind: Kind, data: st.DataObject) -> None:
    """Neighbours of what is damaged are read, and nothing takes long."""
    good, bad = data.draw(kind.values), data.draw(kind.values)
    damaged = bytearray(written(kind.schema, bad[0]) + b"?")
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
            st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])
        )
    cut = data.draw(st.integers(0, len(damaged)))
    payload = written(kind.schema, good[0])
    found = decode(kind.schema, payload, bytes(damaged[:cut]), payload)
    assert found.array[0] == found.array[2]
    assert found.array[0].is_valid
    assert found.faults.keys() <= {1}
    assert found.array[1].is_valid == (not found.faults)


LONG = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"  # 2**62 - 1
INT = b"\xfe\xff\xff\xff\x0f"  # 2**31 - 1
MOST_NEGATIVE = b"\xff" * 9 + b"\x01"
INTS = {"type": "array", "items": "int"}
SIDE = {"type": "enum", "name": "Side", "symbols": ["L", "R"]}
DAY_MILLIS = {"type": "int", "logicalType": "time-millis"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        pytest.param("int", b"", id="nothing"),
        pytest.param("int", b"\x02\x02", id="bytes left over"),
        pytest.param("int", b"\xff\xff\xff\xff\x1f", id="an int of 33 bits"),
        pytest.param("long", b"\xff" * 9 + b"\x80\x01", id="a varint of 11 bytes"),
        pytest.param("double", b"\0" * 7, id="7 bytes of a double"),
        pytest.param("string", b"\x04a", id="a string that is cut off"),
        pytest.param("string", b"\x04\xff\xff", id="no UTF-8"),
        pytest.param("string", b"\x01", id="a negative length"),
        pytest.param("string", INT + b"abc", id="a length of 2**31 - 1"),
        pytest.param("bytes", LONG + b"abc", id="a length of 2**62 - 1"),
        pytest.param("bytes", MOST_NEGATIVE, id="the most negative length"),
        pytest.param(INTS, LONG + b"\x02" * 9, id="an array of 2**62 - 1"),
        pytest.param(INTS, MOST_NEGATIVE, id="an array of the most negative length"),
        pytest.param(INTS, b"\x02\x02", id="an array without an end"),
        pytest.param({"type": "map", "values": "int"}, LONG + b"\x02a\x02", id="a map"),
        pytest.param(["null", "int"], b"\x04\x02", id="branch 2 of a union of 2"),
        pytest.param(SIDE, b"\x04", id="an unknown symbol"),
        pytest.param(SIDE, b"\x01", id="a negative symbol"),
        pytest.param(DAY_MILLIS, b"\x01", id="a time before midnight"),
        pytest.param(DAY_MILLIS, INT, id="a time of 596 hours"),
        pytest.param(CENTS, b"\x04\x03\xe8", id="a decimal of 4 digits for 3"),
        pytest.param(CENTS, b"\x2a" + b"\x01" * 21, id="a decimal of 21 bytes"),
        pytest.param(
            {"type": "long", "logicalType": "timestamp-millis"}, LONG, id="a far time"
        ),
    ],
)
def test_invalid_values_are_reported(schema: Any, payload: bytes) -> None:
    begun = time.monotonic()
    found = decode(schema, None, payload)
    assert time.monotonic() - begun < 1
    assert found.faults.keys() == {1}
    assert found.faults[1]
    assert found.array.null_count == 2


@pytest.mark.parametrize("null_first", [True, False])
def test_a_negative_branch_is_reported(null_first: bool) -> None:
    union = ["null", "int"] if null_first else ["int", "null"]
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": union}]}
    for branch in (b"\x01", b"\x03"):
        assert decode(schema, branch, branch + b"\x02").faults.keys() == {0, 1}


def test_blocks_of_arrays_may_have_their_size() -> None:
    assert decode(INTS, b"\x03\x04\x02\x04\x02\x06\x00").array.to_pylist() == [
        [1, 2, 3]
    ]


def test_the_last_of_two_values_with_one_key_counts() -> None:
    payload = b"\x06" + b"\x02a\x02" + b"\x02b\x04" + b"\x02a\x06" + b"\0"
    found = decode({"type": "map", "values": "int"}, payload, b"\0", payload)
    assert [dict(row) for row in found.array.to_pylist()] == [
        {"a": 3, "b": 2}, {}, {"a": 3, "b": 2}
    ]  # fmt: skip


def test_arrays_of_any_length_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones side by side, the longest one by one."""
    monkeypatch.undo()
    rows = [list(range(n % 40)) for n in range(400)] + [list(range(20_000))]
    payloads = [written(INTS, row) for row in rows]
    begun = time.monotonic()
    assert decode(INTS, *payloads).array.to_pylist() == rows
    assert time.monotonic() - begun < 1


def test_one_value_beyond_its_type_is_found_among_many() -> None:
    schema = record("int", {"type": "long", "logicalType": "timestamp-millis"})
    payloads = [written(schema, {"f0": n, "f1": n}) for n in range(200)]
    payloads[70] = b"\x02" + LONG
    found = decode(schema, *payloads, b"")
    assert found.faults.keys() == {70, 200}
    assert [row["f0"] for row in found.array.to_pylist() if row] == [
        n for n in range(200) if n != 70
    ]


def test_types_are_found_by_their_names() -> None:
    inner = {"type": "enum", "name": "Side", "namespace": "a.b", "symbols": ["L", "R"]}
    schema = {
        "type": "record",
        "name": "a.b.Outer",
        "fields": [
            {"name": "one", "type": inner},
            {"name": "other", "type": "Side"},
            {"name": "third", "type": ["null", "a.b.Side"], "default": None},
        ],
    }
    assert decode(schema, b"\x00\x02\x02\x00").array.to_pylist() == [
        {"one": "L", "other": "R", "third": "L"}
    ]


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": one} for n, one in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def nested(depth: int) -> Any:
    return {"type": "array", "items": nested(depth - 1)} if depth else "int"


def doubling(times: int) -> Any:
    """A short definition of 2**times columns."""
    inner: Any = record("int", name="R0")
    for n in range(1, times):
        inner = record(inner, f"R{n - 1}", name=f"R{n}")
    return inner


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        pytest.param(record(["null", "R"]), "R contains itself", id="a list"),
        pytest.param(record({"type": "array", "items": "R"}), "itself", id="a tree"),
        pytest.param(doubling(40), "more than 10000 columns", id="doubled 40 times"),
        pytest.param(nested(MAX_DEPTH + 1), "nested more than", id="deep"),
        pytest.param(record(["int", "string"]), "f0: a union of 2 types", id="union"),
        pytest.param(["null", "int", "long"], "a union of 3 types", id="union of 3"),
        pytest.param(["int"], "a union of one type", id="union of 1"),
        pytest.param("null", "cannot be of type null", id="null"),
        pytest.param(record("Other"), "f0: unknown type Other", id="unknown name"),
        pytest.param(record(3), "f0: 3 is not a type", id="number"),
        pytest.param({"type": "enum", "name": "E"}, "list of symbols", id="symbols"),
        pytest.param(
            {"type": "enum", "name": "E", "symbols": []}, "symbols", id="no symbols"
        ),
        pytest.param({"type": "record", "fields": []}, "without a name", id="no name"),
        pytest.param({"type": "record", "name": "R"}, "list of fields", id="no fields"),
        pytest.param({"type": "array", "items": record()}, "no bytes", id="no bytes"),
        pytest.param(
            record(record(name="R")), "the type R is defined twice", id="twice"
        ),
        pytest.param(
            {"type": "fixed", "name": "F", "size": -1}, "of -1 bytes", id="fixed"
        ),
        pytest.param(
            {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 39,
                "scale": 0,
            },
            "39 digits; Spark has 38",
            id="decimal",
        ),
    ],
)
def test_schemas_without_columns_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CONNECTOR.decoding({"valueSchema": json.dumps(schema)})
