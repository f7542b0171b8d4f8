"""Whatever is damaged: a named error, or each entry as it is, or reported as lost.

What is asked for, and what cannot be, stands in fuzzing.py. To look for more, for
FUZZ_SECONDS of the environment:

    FUZZ_SECONDS=1200 python -m pytest -m long tests/unit/pulsar/test_fuzz.py

and to try one case again, as a failure says:

    FUZZ_CASE=classic:1,2 python -m pytest tests/unit/pulsar/test_fuzz.py -k again
"""

from __future__ import annotations

import json
import os
import random
import time

import pytest

from sparkcache.errors import ConfigError
from sparkcache.testing import MemoryStorage
from sparkcache_pulsar.manifest import Listed, read_manifest
from sparkcache_pulsar.names import FileKey, Key, SegmentKey, full_name, partition
from sparkcache_pulsar.testing import Codec

from .damage import Case, damage
from .fuzz_topics import LAYOUTS, sources, written
from .fuzzing import bounded, campaign, check, judge, read
from .reference import decode_entry
from .topics import TOPIC, expected_rows

CASES = 60  # of each layout, in every run of the tests


def commands_for(failed: list[tuple[Case, str]]) -> str:
    return "\n".join(
        f"FUZZ_CASE={case} python -m pytest tests/unit/pulsar/test_fuzz.py -k again\n"
        f"  {what}"
        for case, what in failed
    )


def test_the_reference_reads_what_was_written() -> None:
    entries = sources()
    for ledger in {ledger for ledger, _ in entries}:
        of_ledger = [entry for (of, _), entry in entries.items() if of == ledger]
        rows = []
        for number in range(len(of_ledger)):
            rows += decode_entry(written()[ledger, number], ledger, number) or []

        assert [row["value"] for row in rows] == [
            row["value"]
            for row in expected_rows(of_ledger, ledger=ledger, all_states=True)
        ]

    assert {entry.codec for entry in entries.values()} == set(Codec)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_topic_that_is_not_damaged(layout: str) -> None:
    damaged = damage(Case(layout, ()))
    found = read(damaged, Case(layout, ()))
    judge(damaged, found, layout)
    assert not found.losses
    assert found.rows.keys() == {
        place for place, entry in sources().items() if entry.marker is None
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_topic_that_is_damaged(layout: str) -> None:
    failed = []
    with bounded():
        for seed in range(CASES):
            case = Case(layout, (seed,))
            try:
                check(case)
            except Exception as error:
                failed.append((case, f"{type(error).__name__}: {error}"))
    assert not failed, commands_for(failed)


def test_again() -> None:
    with bounded():
        check(Case.parse(os.environ.get("FUZZ_CASE", "classic:1,2")))


@pytest.mark.long
def test_many_topics_that_are_damaged() -> None:
    seconds = float(os.environ.get("FUZZ_SECONDS", "600"))
    with bounded():
        cases, kinds, failed = campaign(seconds, seed=time.time_ns())
    print(f"{cases} cases, {kinds} kinds of them")
    assert not failed, commands_for(failed)


LEDGERS = {
    "version": 1,
    "ledgers": [
        {
            "ledgerId": 48,
            "entries": 3,
            "isOffloaded": True,
            "offloadedContextUuid": "0e59e9ef-4d7b-46a8-a590-9f69dac1d474",
        },
        {"ledgerId": 52, "timestamp": 1_795_228_533_375, "isOffloaded": False},
        {"ledgerId": 53, "entries": 0, "offloaded": True, "metadata": None},
    ],
}
TOKENS = (
    *'{}[]",: \0',
    *("null", "true", "NaN", "1e999", "-1", "0.5", "9" * 30, "9" * 5000),
    *("\\ud800", "ledgers", "ledgerId"),
)


def test_manifests_that_are_damaged() -> None:
    random_ = random.Random(1)
    for _ in range(3000):
        text = json.dumps(LEDGERS)
        for _ in range(random_.randrange(1, 4)):
            at = random_.randrange(len(text))
            new = random_.choice([*TOKENS, "", chr(random_.randrange(0x500))])
            text = text[:at] + new + text[at + random_.randrange(12) :]
        if not text.startswith("{"):  # it would be taken for a name
            continue
        try:
            found = read_manifest(MemoryStorage(), {"manifest": text})
        except ConfigError:
            continue
        assert found is not None
        for ledger, listed in found.items():
            assert isinstance(listed, Listed)
            assert 0 <= ledger < 1 << 63, text
            assert 0 <= listed.entries < 1 << 63, text


@pytest.mark.parametrize(
    "name",
    [
        "0e59e9ef-4d7b-46a8-a590-9f69dac1d474-ledger-48-index",
        "0e59e9ef-4d7b-46a8-a590-9f69dac1d474-index",
        "shop/eu/persistent/orders/48-0e59e9ef-4d7b-46a8-a590-9f69dac1d474/data",
        "persistent://shop/eu/orders-partition-3",
        "shop/eu/persistent/a+b%2Fc",
    ],
)
def test_names_that_are_damaged(name: str) -> None:
    """What is read of a name is what its text is written from, or it is no name."""
    random_ = random.Random(2)
    for _ in range(3000):
        at = random_.randrange(len(name) + 1)
        new = random_.choice(
            ["", "/", "-", "9" * 20, "0", "%", "\n", "\u0663", "f", "#"]
        )
        text = name[:at] + new + name[at + random_.randrange(5) :]
        for kind in (Key, SegmentKey, FileKey):
            key = kind.parse(text)
            if key is not None:
                assert kind.parse(str(key)) == key
                ledger = getattr(key, "ledger", 0)
                assert 0 <= ledger < 1 << 63
        try:
            topic = full_name(text)
        except ConfigError:
            continue
        assert topic.startswith("persistent://")
        assert (partition(topic) or 0) < 1 << 31
        assert topic != TOPIC
