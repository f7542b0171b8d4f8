"""How a record of metrics declares them: published name, kind, meaning.

`counter`, `gauge` and `distribution` stand where a field's default would, `derived`
decorates a property.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from sparkcache.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

_Getter = TypeVar("_Getter", bound="Callable[..., float]")
_V = TypeVar("_V")
_KEY = "metric"


class Kind(Enum):
    """How the values of a metric develop."""

    COUNTER = "counter"
    """Only grows."""
    GAUGE = "gauge"
    """Goes up and down."""
    DISTRIBUTION = "distribution"
    """A histogram, whose counts only grow."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """What there is to know about a metric.

    Attributes:
        name: The published name; that of Micrometer where it has one. It is used in
            Spark's metrics system, in OpenTelemetry and in Grafana.
        kind: How its values develop.
        meaning: A sentence.
        is_held: Whether it describes what a node holds, which ends with the node.
        field: The name of the field or property; its suffix is the unit.

    """

    name: str
    kind: Kind
    meaning: str
    is_held: bool = False
    field: str = ""

    @property
    def unit(self) -> str:
        """The unit in UCUM notation; `1` for plain numbers."""
        if self.field.endswith("_bytes"):
            return "By"
        return "s" if self.field.endswith("_s") else "1"


def counter(name: str, meaning: str) -> int:
    """Declare a field that only grows."""
    return _declared(0, MetricDefinition(name, Kind.COUNTER, meaning))


def gauge(name: str, meaning: str, *, is_held: bool = True) -> int:
    """Declare a field that goes up and down."""
    return _declared(0, MetricDefinition(name, Kind.GAUGE, meaning, is_held))


def distribution(name: str, meaning: str, bounds: tuple[float, ...]) -> Histogram:
    """Declare a field that counts values by range."""
    definition = MetricDefinition(name, Kind.DISTRIBUTION, meaning)
    return _declared(Histogram.empty(bounds), definition)


def derived(name: str, *, is_held: bool = False) -> Callable[[_Getter], _Getter]:
    """Declare a property as a gauge; its docstring is the meaning."""

    def declare(getter: _Getter) -> _Getter:
        meaning = " ".join((getter.__doc__ or "").split())
        vars(getter)[_KEY] = MetricDefinition(name, Kind.GAUGE, meaning, is_held)
        return getter

    return declare


def definitions(record: type) -> dict[str, MetricDefinition]:
    """Return the metrics that a dataclass declares, by field; properties come last."""
    declared = {spec.name: spec.metadata[_KEY] for spec in fields(record)}
    for name, member in vars(record).items():
        if isinstance(member, property) and _KEY in vars(member.fget):
            declared[name] = vars(member.fget)[_KEY]
    return {name: replace(one, field=name) for name, one in declared.items()}


def _declared(default: _V, definition: MetricDefinition) -> _V:
    return field(default=default, metadata={_KEY: definition})
