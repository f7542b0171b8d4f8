"""Arbitrary Avro types and their values: as fastavro takes them, as JSON, as read."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import hypothesis.strategies as st

Values = st.SearchStrategy[tuple[Any, Any, Any]]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Kind:
    """A type: what defines it, given numbers to make names of, and its values.

    Each value as a triple: for fastavro, for JSON, and as it has to be read.
    """

    define: Callable[[Iterator[int]], Any]
    values: Values

    @property
    def schema(self) -> Any:
        return self.define(count())


def leaf(schema: Any, values: st.SearchStrategy[Any]) -> Kind:
    return Kind(lambda _: schema, values.map(lambda value: (value, value, value)))


def logical(
    primitive: str,
    name: str,
    values: st.SearchStrategy[Any],
    number: Callable[[Any], int],
    read: Callable[[Any], Any] = lambda value: value,
) -> Kind:
    """A type whose values are numbers in JSON."""
    return Kind(
        lambda _: {"type": primitive, "logicalType": name},
        values.map(lambda value: (value, number(value), read(value))),
    )


def _since_midnight(time: dt.time) -> int:
    at = dt.datetime.combine(EPOCH, time, dt.UTC)
    return (at - EPOCH) // MICRO


def _since_epoch(time: dt.datetime) -> int:
    return (time.replace(tzinfo=dt.UTC) - EPOCH) // MICRO


def _whole_millis(time: Any) -> Any:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _decimals(precision: int, scale: int, size: int | None) -> Kind:
    limit = 10**precision - 1
    numbers = st.integers(-limit, limit).map(
        lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=precision))
    )

    def define(names: Iterator[int]) -> Any:
        meaning = {"logicalType": "decimal", "precision": precision, "scale": scale}
        if size is None:
            return {"type": "bytes", **meaning}
        return {"type": "fixed", "name": f"d{next(names)}", "size": size, **meaning}

    return Kind(define, numbers.map(lambda number: (number, number, number)))


def _fixed(size: int) -> Kind:
    return Kind(
        lambda names: {"type": "fixed", "name": f"f{next(names)}", "size": size},
        st.binary(min_size=size, max_size=size).map(lambda b: (b, b, b)),
    )


def _enum(symbols: list[str]) -> Kind:
    return Kind(
        lambda names: {"type": "enum", "name": f"e{next(names)}", "symbols": symbols},
        st.sampled_from(symbols).map(lambda s: (s, s, s)),
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times = st.times()
moments = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
instants = moments.map(lambda time: time.replace(tzinfo=dt.UTC))

leaves = st.sampled_from(
    [
        leaf("boolean", st.booleans()),
        leaf("int", st.integers(-(2**31), 2**31 - 1)),
        leaf("long", st.integers(-(2**63), 2**63 - 1)),
        leaf("float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
        leaf("double", st.floats(allow_nan=False, allow_infinity=False)),
        leaf("bytes", st.binary(max_size=8)),
        leaf("string", texts),
        leaf({"type": "string", "avro.java.string": "String"}, texts),
        leaf({"type": "int", "logicalType": "unheard-of"}, st.integers(-99, 99)),
        logical("int", "date", st.dates(), lambda day: (day - EPOCH.date()).days),
        logical(
            "int",
            "time-millis",
            times.map(_whole_millis),
            lambda time: _since_midnight(time) // 1000,
            lambda time: _since_midnight(time) * MICRO,
        ),
        logical(
            "long",
            "time-micros",
            times,
            _since_midnight,
            lambda time: _since_midnight(time) * MICRO,
        ),
        logical(
            "long",
            "timestamp-millis",
            instants.map(_whole_millis),
            lambda time: _since_epoch(time) // 1000,
        ),
        logical("long", "timestamp-micros", instants, _since_epoch),
        logical(
            "long",
            "local-timestamp-millis",
            moments.map(_whole_millis),
            lambda time: _since_epoch(time) // 1000,
        ),
        logical("long", "local-timestamp-micros", moments, _since_epoch),
        Kind(
            lambda _: {"type": "string", "logicalType": "uuid"},
            st.uuids().map(lambda one: (one, str(one), str(one))),
        ),
        _decimals(9, 2, None),
        _decimals(38, 38, None),
        _decimals(38, 0, 16),
        _decimals(4, 2, 3),
        _fixed(0),
        _fixed(5),
        _enum(["A"]),
        _enum(["LEFT", "RIGHT", "UP"]),
    ]
)


def _forms(form: Callable[[int], Any]) -> tuple[Any, Any, Any]:
    """A value in its three forms, by their places in a triple."""
    return form(0), form(1), form(2)


def nullable(kind: Kind, null_first: bool) -> Kind:
    def define(names: Iterator[int]) -> Any:
        of = kind.define(names)
        return ["null", of] if null_first else [of, "null"]

    return Kind(define, st.just((None, None, None)) | kind.values)


def array(kind: Kind) -> Kind:
    return Kind(
        lambda names: {"type": "array", "items": kind.define(names)},
        st.lists(kind.values, max_size=4).map(
            lambda found: _forms(lambda form: [one[form] for one in found])
        ),
    )


def mapping(kind: Kind) -> Kind:
    return Kind(
        lambda names: {"type": "map", "values": kind.define(names)},
        st.dictionaries(texts, kind.values, max_size=3).map(
            lambda found: _forms(
                lambda form: {key: one[form] for key, one in found.items()}
            )
        ),
    )


def record(kinds: list[Kind]) -> Kind:
    def define(names: Iterator[int]) -> Any:
        fields = [
            {"name": f"c{n}", "type": kind.define(names)}
            for n, kind in enumerate(kinds)
        ]
        name = f"r{next(names)}"
        return {"type": "record", "name": name, "namespace": "x.y", "fields": fields}

    return Kind(
        define,
        st.tuples(*[kind.values for kind in kinds]).map(
            lambda found: _forms(
                lambda form: {f"c{n}": one[form] for n, one in enumerate(found)}
            )
        ),
    )


def _is_union(kind: Kind) -> bool:
    return isinstance(kind.schema, list)


kinds = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(nullable, inner.filter(lambda k: not _is_union(k)), st.booleans()),
        st.builds(array, inner.filter(lambda k: "'size': 0" not in str(k.schema))),
        st.builds(mapping, inner),
        st.builds(record, st.lists(inner, min_size=1, max_size=4)),
    ),
    max_leaves=8,
)
records = st.builds(record, st.lists(kinds, min_size=1, max_size=5))
flat_records = st.builds(
    record,
    st.lists(
        leaves | st.builds(nullable, leaves, st.booleans()), min_size=1, max_size=6
    ),
)
