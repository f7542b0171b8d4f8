"""The log of a node, which does not grow for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkcache.node.node_log import limit_log

if TYPE_CHECKING:
    from pathlib import Path


def test_a_long_log_is_moved_and_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as node, log.open("ab", buffering=0) as loader:
        for number in range(3):
            node.write(b"node %d\n" % number)
            loader.write(b"loader %d\n" % number)
            limit_log(log, max_bytes=20)
        assert log.read_bytes() == b"node 2\nloader 2\n"
        earlier = (tmp_path / "log.1").read_bytes()
        assert earlier == b"node 0\nloader 0\nnode 1\nloader 1\n"


def test_a_log_without_room_for_a_copy_is_emptied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 21)
    (tmp_path / "log.1").mkdir()
    limit_log(log, max_bytes=20)
    assert log.read_bytes() == b""
    assert "Is a directory" in caplog.text


def test_a_log_that_is_gone_is_no_error(tmp_path: Path) -> None:
    limit_log(tmp_path / "log")
