"""Files that other writers make: read as Spark reads them, or errors that say why."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparkcache.errors import SourceError
from sparkcache.fetch.load import Load, begin, fetch
from sparkcache.testing.reading import as_dicts
from sparkcache_delta import DeltaConnector, splitting
from sparkcache_delta.footer_types import with_fixed_bytes
from sparkcache_delta.long_decimals import decimals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.unit.delta.lake import Lake

ROWS = 200


class SmallSteps(pq.ParquetFile):  # type: ignore[misc]
    """A file with so many bytes in each row that only few rows can be read at once."""

    MOST = 5
    READ = 1  # how many larger steps succeed before one fails
    asked: list[int]

    def iter_batches(self, rows: int, *args: Any, **kwargs: Any) -> Iterator[Any]:
        type(self).asked.append(rows)
        for number, batch in enumerate(super().iter_batches(rows, *args, **kwargs)):
            if rows > self.MOST and number >= self.READ:
                raise pa.ArrowNotImplementedError("chunked array outputs")
            yield batch


@pytest.fixture
def path(lake: Lake) -> Path:
    folder = lake.directory / "t"
    folder.mkdir()
    return folder / "a.parquet"


def nested(kind: str) -> pa.Array:
    texts = pa.array([f"text {at % 7}" for at in range(ROWS)]).dictionary_encode()
    if kind == "struct":
        return pa.StructArray.from_arrays([texts], names=["x"])
    return pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), texts)


@pytest.mark.parametrize("kind", ["list", "struct"])
def test_nested_columns_whose_dictionaries_differ(
    lake: Lake, path: Path, kind: str
) -> None:
    rows = pa.table({"id": range(ROWS), "x": nested(kind)})
    pq.write_table(rows, path, row_group_size=30)
    found, losses = lake.read("t", run_bytes=100)
    assert not losses
    assert found == rows.to_pylist()


def test_rows_that_can_only_be_read_few_at_a_time(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pq, "ParquetFile", SmallSteps)
    monkeypatch.setattr(splitting, "_MOST_ROWS", 64)
    monkeypatch.setattr(SmallSteps, "asked", [], raising=False)
    rows = pa.table({"id": range(ROWS)})
    pq.write_table(rows, path, row_group_size=90)
    assert lake.rows("t") == rows.to_pylist()
    assert SmallSteps.asked == [64, 64, 4, 64, 4, 64]


def test_rows_that_cannot_be_read_at_all_are_a_loss(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pq, "ParquetFile", SmallSteps)
    monkeypatch.setattr(SmallSteps, "asked", [], raising=False)
    monkeypatch.setattr(SmallSteps, "MOST", 0)
    monkeypatch.setattr(SmallSteps, "READ", 0)
    pq.write_table(pa.table({"id": range(ROWS)}), path, row_group_size=90)
    found, (loss,) = lake.read("t")
    assert not found
    assert (loss.first, loss.last) == (0, ROWS - 1)
    assert "chunked array outputs" in loss.found


def test_maps_whose_keys_may_be_null(lake: Lake, path: Path) -> None:
    rows = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(rows, path, compression="none", store_schema=False)
    data = path.read_bytes()
    required, optional = b"\x25\x00\x18\x03key", b"\x25\x02\x18\x03key"
    assert data.count(required) == 1
    path.write_bytes(data.replace(required, optional))
    with pytest.raises(SourceError, match=r"a\.parquet.*Map keys must be annotated"):
        lake.rows("t")


DAY = 2_440_588  # the Julian number of 1970-01-01
DAY_NS = 86_400_000_000_000
# Each with the microseconds since 1970 that Spark 4.2 reads.
STORED = {
    (0, DAY): 0,
    (DAY_NS + 5999, DAY): 86_400_000_005,
    (-5999, DAY): -5,
    (10**18, DAY + 1): 1_000_086_400_000_000,
    (1000, 2**31 - 1): 864_279_560_504_483_841,
    (1000, -(2**31)): 864_279_646_904_483_841,
    (1000, -1): -210_866_889_599_999_999,
    (-(2**63), DAY): -9_223_372_036_854_775,
    (2**63 - 1, 0): -201_643_431_163_145_225,
}


def write_int96(path: Path, *, dictionary: bool = False, stored_schema: bool) -> None:
    """Write all times three times, with a null after each, in two row groups."""
    count = len(STORED)
    rows = pa.table(
        {
            "id": range(6 * count),
            "at": pa.array(
                [at // 2 % count if at % 2 else None for at in range(6 * count)],
                pa.timestamp("us"),
            ),
            "n": [{"x": f"text {at}"} for at in range(6 * count)],
        }
    )
    pq.write_table(
        rows,
        path,
        row_group_size=2 * count,
        compression="none",
        use_dictionary=["at"] if dictionary else False,
        store_schema=stored_schema,
        use_deprecated_int96_timestamps=True,
    )
    data = path.read_bytes()
    before = b"".join(struct.pack("<qi", 1000 * at, DAY) for at in range(count))
    after = b"".join(struct.pack("<qi", *parts) for parts in STORED)
    assert data.count(before) == 3
    path.write_bytes(data.replace(before, after))


@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize("stored_schema", [False, True], ids=["alone", "with Arrow's"])
@pytest.mark.parametrize("columns", ["id,at,n", "at", "n,at"])
def test_times_outside_the_day_are_those_of_spark(
    lake: Lake, path: Path, dictionary: bool, stored_schema: bool, columns: str
) -> None:
    write_int96(path, dictionary=dictionary, stored_schema=stored_schema)
    batches = decoded(lake, columns)
    found = pa.chunked_array([batch.column("at").cast(pa.int64()) for batch in batches])
    expected = [time for value in STORED.values() for time in (None, value)]
    assert found.to_pylist() == 3 * expected
    for batch in batches:
        assert batch.schema.field("at").type == pa.timestamp("us", "UTC")
    if "n" in columns.split(","):
        texts = [
            row["n"]["x"]
            for batch in batches
            for row in batch.select(["n"]).to_pylist()
        ]
        assert texts == [f"text {at}" for at in range(len(expected) * 3)]


def nested_in(values: pa.Array, kind: str) -> pa.Array:
    """Return rows with one value each, within a type; a row in four is null."""
    rows = values.to_pylist()
    holes = [at % 4 == 3 for at in range(len(rows))]
    struct = pa.struct([("id", pa.int64()), ("x", values.type)])
    types = {
        "struct": struct,
        "list": pa.list_(values.type),
        "list of structs": pa.list_(struct),
        "map of lists": pa.map_(pa.string(), pa.list_(values.type)),
    }
    make: dict[str, Callable[[int, Any], Any]] = {
        "struct": lambda at, value: {"id": at, "x": value},
        "list": lambda _, value: [value],
        "list of structs": lambda at, value: [{"id": at, "x": value}],
        "map of lists": lambda at, value: [(f"k{at}", [value])],
    }
    nested = [make[kind](at, value) for at, value in enumerate(rows)]
    return pa.array(nested, types[kind], mask=np.array(holes))


def leaves_of(column: pa.Array) -> pa.Array:
    """Return the values within an array of `nested_in`."""
    if pa.types.is_map(column.type):
        return leaves_of(column.items)
    if pa.types.is_list(column.type):
        return leaves_of(column.flatten())
    return pc.struct_field(column, "x") if pa.types.is_struct(column.type) else column


NESTED = ["struct", "list", "list of structs", "map of lists"]


@pytest.mark.parametrize("kind", NESTED)
def test_nested_times_outside_the_day_are_those_of_spark(
    lake: Lake, path: Path, kind: str
) -> None:
    count = len(STORED)
    times = pa.array([*range(count), None], pa.timestamp("us"))
    whole = nested_in(times, kind)
    kept = [at for at in range(count) if at % 4 != 3]
    pq.write_table(
        pa.table({"id": range(len(whole)), "a.b": whole}),
        path,
        compression="none",
        use_dictionary=False,
        use_deprecated_int96_timestamps=True,
    )
    data = path.read_bytes()
    stored = list(STORED)
    before = b"".join(struct.pack("<qi", 1000 * at, DAY) for at in kept)
    assert data.count(before) == 1
    after = b"".join(struct.pack("<qi", *stored[at]) for at in kept)
    path.write_bytes(data.replace(before, after))
    batches = decoded(lake, "a.b,id")
    assert len(batches) > 1
    found = [
        value
        for batch in batches
        for value in leaves_of(batch.column("a.b")).cast(pa.int64()).to_pylist()
        if value is not None
    ]
    assert found == [STORED[stored[at]] for at in kept]
    missing = pa.chunked_array([batch.column("a.b").is_null() for batch in batches])
    assert missing.to_pylist() == [at % 4 == 3 for at in range(len(whole))]


@pytest.mark.parametrize("kind", NESTED)
def test_nested_decimals_in_more_bytes_than_they_need(
    lake: Lake, path: Path, kind: str
) -> None:
    values = ["1.25", "-2.50", None, "0.00", "-99999999.99", "99999999.99"]
    rows = write_long_decimals(path, values, lambda wide: nested_in(wide, kind))
    assert lake.rows("t") == rows
    write_long_decimals(path, ["1" * 40], lambda wide: nested_in(wide, kind))
    found, (loss,) = lake.read("t")
    assert not found
    assert re.search(r"column price\..*: a decimal that needs more than 16", loss.found)


def decoded(lake: Lake, columns: str) -> list[pa.RecordBatch]:
    """Return decoded batches: Python has no values for some of the times."""
    storage, connector = lake.storage(), DeltaConnector()
    (found,) = lake.snapshot("t", columns=columns).ledgers
    return [
        batch
        for extent in found.extents
        for runs in [connector.runs(extent, 100)]
        for load in [
            Load(
                found.ledger,
                extent,
                tuple(runs),
                extent.offset,
                extent.offset + extent.size_bytes,
            )
        ]
        for raw in fetch(connector, load, begin(storage, load))
        for batch in connector.decode(found.ledger, raw, 1 << 20).batches
    ]


def test_a_footer_that_is_rewritten_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {f"c{at}": pa.array([at, None], pa.timestamp("us")) for at in range(40)}
    rows = pa.table({**columns, "b": [True, None], "x": [0.5, 1.5]})
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, row_group_size=1)
    data = path.read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert with_fixed_bytes(footer, ()) == footer
    changed = with_fixed_bytes(footer, tuple((at, 12) for at in range(40)))
    tail = changed + len(changed).to_bytes(4, "little") + b"PAR1"
    metadata = pq.read_metadata(pa.BufferReader(tail))
    before = pq.read_metadata(path)
    for at in range(42):
        kind = (
            "FIXED_LEN_BYTE_ARRAY"
            if at < 40
            else before.schema.column(at).physical_type
        )
        assert metadata.schema.column(at).physical_type == kind
    assert metadata.row_group(1).column(41) == before.row_group(1).column(41)
    assert metadata.metadata == before.metadata
    with pytest.raises(pa.ArrowInvalid, match="cannot be rewritten"):
        with_fixed_bytes(footer[:100], ((0, 12),))


def write_long_decimals(
    path: Path,
    values: Sequence[str | None],
    within: Callable[[pa.Array], pa.Array] = lambda wide: wide,
) -> list[dict[str, Any]]:
    """Write decimals of 10 digits in 21 bytes, which Arrow's writer does for 48.

    Return the rows.
    """
    wide = pa.array(
        [value and Decimal(value) for value in values], pa.decimal256(48, 2)
    )
    rows = pa.table({"id": range(len(values)), "price": within(wide)})
    pq.write_table(rows, path, compression="none", row_group_size=3, store_schema=False)
    data = path.read_bytes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:]
    assert footer.count(b"\x15\x60") == 2  # the precision, as a zigzag number
    path.write_bytes(data[:begin] + footer.replace(b"\x15\x60", b"\x15\x14"))
    return as_dicts(rows)


def test_decimals_in_more_bytes_than_they_need(lake: Lake, path: Path) -> None:
    values = ["1.25", "-2.50", None, "0.00", None, "-99999999.99", "99999999.99"]
    write_long_decimals(path, values)
    assert pq.read_metadata(path).schema.column(1).length == 21
    found = lake.rows("t", columns="price,id")
    assert [row["price"] for row in found] == [
        value and Decimal(value) for value in values
    ]
    assert [row["id"] for row in found] == list(range(len(values)))
    assert lake.rows("t", where="price < -2.5") == [
        {"id": 5, "price": Decimal(str(values[5]))}
    ]


def test_decimals_of_too_many_digits_are_a_loss(lake: Lake, path: Path) -> None:
    write_long_decimals(path, ["1.25", "9" * 44])
    found, (loss,) = lake.read("t")
    assert not found
    assert "column price: a decimal that needs more than 16 of its 21" in loss.found


def test_decimals_of_a_slice() -> None:
    stored = [
        None,
        *(number.to_bytes(17, "big", signed=True) for number in range(-20, 20)),
    ]
    kind = pa.decimal128(10, 2)
    array = pa.array([*stored, None], pa.binary(17)).slice(3, 39)
    expected = [Decimal(number).scaleb(-2) for number in range(-18, 20)]
    assert decimals(array, kind, "price").to_pylist() == [*expected, None]
    assert decimals(array.slice(38), kind, "price").to_pylist() == [None]
