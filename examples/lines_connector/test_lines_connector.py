"""The connector keeps the contract, and reads the lines that are stored."""

from __future__ import annotations

from lines_connector import LinesConnector

from sparkcache.testing import MemoryStorage, check_connector


def test_the_contract() -> None:
    storage = MemoryStorage()
    storage.put("orders/1.txt", b"first\nsecond\n\nfourth\n")
    storage.put("orders/2.txt", "füfth\nsixth, without an end".encode())
    storage.put("orders/readme.md", b"not a file of the topic")
    rows, losses = check_connector(LinesConnector(), storage, "orders")
    assert [row["line"] for row in rows] == [
        *("first", "second", "", "fourth", "füfth", "sixth, without an end")
    ]
    assert [(row["file"], row["offset"]) for row in rows[-2:]] == [(2, 0), (2, 7)]
    assert not losses


def test_what_is_not_text_is_a_loss() -> None:
    storage = MemoryStorage()
    storage.put("orders/1.txt", b"sound\n\xff\nsound\n")
    rows, (loss,) = check_connector(LinesConnector(), storage, "orders")
    assert [row["line"] for row in rows] == ["sound", "sound"]
    assert (loss.offset, loss.first, loss.last) == (6, 6, 6)
    rows, losses = check_connector(
        LinesConnector(), storage, "orders", {"encoding": "latin-1"}
    )
    assert [row["line"] for row in rows] == ["sound", "ÿ", "sound"]
    assert not losses
