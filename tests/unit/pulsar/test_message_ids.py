"""Message ids, byte by byte as Pulsar's Java client writes them."""

from __future__ import annotations

import numpy as np
import pytest

from sparkcache_pulsar.message_ids import message_ids


@pytest.mark.parametrize(
    ("ledger", "entry", "partition", "batch_index", "batch_size", "encoded"),
    [
        pytest.param(3, 0, None, 0, 5, "0803100020003005", id="first of a batch"),
        pytest.param(23, 0, None, -1, 0, "081710003000", id="not in a batch"),
        pytest.param(32, 0, 1, 0, 3, "08201000180120003003", id="in a partition"),
        pytest.param(
            300, 70000, 0, 128, 129, "08ac0210f0a2041800208001308101", id="long varints"
        ),
        pytest.param(
            2**63 - 1, 1, None, -1, 0, "08ffffffffffffffff7f10013000", id="longest"
        ),
    ],
)
def test_one_message_id(
    ledger: int,
    entry: int,
    partition: int | None,
    batch_index: int,
    batch_size: int,
    encoded: str,
) -> None:
    ids = message_ids(
        ledger,
        np.array([entry]),
        partition,
        np.array([batch_index]),
        np.array([batch_size]),
    )
    assert ids.to_pylist() == [bytes.fromhex(encoded)]


def test_message_ids_of_different_lengths() -> None:
    entries = np.array([0, 127, 128, 2**40])
    ids = message_ids(
        1, entries, None, np.array([-1, 0, 200, -1]), np.array([0, 1, 300, 0])
    )
    ids.validate(full=True)
    one_by_one = [
        message_ids(1, entries[i : i + 1], None, np.array([b]), np.array([n]))[0]
        for i, (b, n) in enumerate([(-1, 0), (0, 1), (200, 300), (-1, 0)])
    ]
    assert list(ids) == one_by_one
