"""The limits and times to live: which are legal, which hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sparkcache.cache import Settings, Ttl, resolve_ttl
from tests.unit.cache.cache_cases import PULSAR, ROOMY


@pytest.mark.parametrize(
    ("create_s", "after_read_s", "legacy_s", "resolved"),
    [
        pytest.param(180, 10, 15, (180, 10), id="both are set: both hold"),
        pytest.param(0, 0, 15, (15, 15), id="both are off: legacy, since last access"),
        pytest.param(-1, -1, 15, (15, 15), id="negative is off too"),
        pytest.param(0, 10, 15, (15, 10), id="create is off: it takes the legacy one"),
        pytest.param(180, 0, 15, (180, 15), id="after-read is off: it takes legacy"),
        pytest.param(180, 0, 0, (0, 0), id="nothing to take: the dual policy is off"),
        pytest.param(0, 10, -1, (0, 0), id="nothing to take for create: off as well"),
        pytest.param(0, 0, 0, (0, 0), id="all are off: runs end at once"),
        pytest.param(180, 10, 0, (180, 10), id="legacy is not needed: it may be off"),
        pytest.param(0.1, 0.2, 15, (0.1, 0.2), id="after-read may be longer: it stays"),
    ],
)
def test_resolve_ttl(
    create_s: float,
    after_read_s: float,
    legacy_s: float,
    resolved: tuple[float, float],
) -> None:
    ttl = resolve_ttl(create_s, after_read_s, legacy_s=legacy_s, expected_s=600)
    assert ttl == Ttl(*resolved, expected_s=600)


@pytest.mark.parametrize("create_s", [180, 0])
@pytest.mark.parametrize(
    ("given_s", "cap_s"),
    [
        pytest.param(60, 60, id="a cap"),
        pytest.param(0, math.inf, id="0: none"),
        pytest.param(-1, math.inf, id="negative: none either"),
    ],
)
def test_the_cap_does_not_depend_on_the_policy(
    create_s: float, given_s: float, cap_s: float
) -> None:
    ttl = resolve_ttl(create_s, 0, legacy_s=15, expected_s=600, max_life_s=given_s)
    assert ttl.max_life_s == cap_s


@pytest.mark.parametrize(
    ("field", "value", "would_do"),
    [
        ("max_bytes", -1, "0 or more"),
        ("max_runs", -1, "0 or more"),
        ("max_requeues", -1, "0 or more"),
        ("trigger", 0.0, r"a share in \(0, 1]"),
        ("trigger", 1.01, r"a share in \(0, 1]"),
        ("trigger", math.nan, r"a share in \(0, 1]"),
        ("watermark", 0.0, r"a share in \(0, 0.98]"),
        ("watermark", 0.99, r"a share in \(0, 0.98]"),
    ],
)
def test_an_illegal_setting_is_named_with_what_would_do(
    field: str, value: float, would_do: str
) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"{field} is {value}: use {would_do}"):
        replace(ROOMY, **changes)


@pytest.mark.parametrize(
    "field", ["create_s", "after_read_s", "expected_s", "max_life_s"]
)
@pytest.mark.parametrize("value_s", [-0.1, math.nan])
def test_an_illegal_time_is_named(field: str, value_s: float) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value_s}: use 0 or more"):
        replace(PULSAR, **{field: value_s})


def test_the_shares_are_pulsars_unless_said_otherwise() -> None:
    settings = Settings(max_bytes=1000, max_runs=10, ttl=PULSAR)
    assert (settings.trigger_bytes, settings.watermark_bytes) == (980, 900)
    assert settings.max_requeues == 5
    assert not settings.extend_recently_accessed
