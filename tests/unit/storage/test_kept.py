"""What is kept on disk between plans: bounded, and never an error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import StorageConfig
from sparkcache.model import ObjectId
from sparkcache.storage import Traffic, open_storage
from sparkcache.storage.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.unit.storage.stores import Store

KIND = "test-1"
ROOT = "s3://bucket/prefix"


def ids(first: int, count: int) -> list[ObjectId]:
    numbers = range(first, first + count)
    return [ObjectId(f"{ROOT}/{number}", number, f"v{number}") for number in numbers]


def records(of: Sequence[ObjectId]) -> list[tuple[ObjectId, bytes]]:
    return [(each, os.urandom(100)) for each in of]


def files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.kept"))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(ROOT, str(tmp_path / "kept"), 1 << 20)


def other_process(tmp_path: Path, root: str = ROOT, most_bytes: int = 1 << 20) -> Kept:
    return Kept(root, str(tmp_path / "kept"), most_bytes)


def test_what_is_remembered_is_recalled(kept: Kept, tmp_path: Path) -> None:
    known = records(ids(0, 5))
    kept.remember(KIND, known)
    asked = [*ids(3, 4), *ids(0, 1)]
    expected = [record for _, record in [*known[3:], known[0]]]
    later = other_process(tmp_path)
    assert later.recall(KIND, asked) == [*expected[:2], None, None, expected[2]]


def test_another_version_kind_or_root_is_not_recalled(
    kept: Kept, tmp_path: Path
) -> None:
    (known,) = ids(0, 1)
    kept.remember(KIND, [(known, b"record")])
    changed = ObjectId(known.uri, known.size_bytes, "v-new")
    assert kept.recall(KIND, [changed, known]) == [None, b"record"]
    assert kept.recall("test-2", [known]) == [None]
    assert other_process(tmp_path, root="s3://other").recall(KIND, [known]) == [None]


@pytest.mark.parametrize(
    "damage", [b"", b"not ours", b"sparkcache kept 1\n" + b"x" * 50]
)
def test_a_damaged_file_is_removed(kept: Kept, tmp_path: Path, damage: bytes) -> None:
    kept.remember(KIND, records(ids(0, 5)))
    (file,) = files(tmp_path)
    file.write_bytes(damage)
    kept.remember(KIND, [(ids(5, 1)[0], b"record")])
    assert kept.recall(KIND, ids(0, 6)) == [*[None] * 5, b"record"]
    assert file not in files(tmp_path)


def test_any_changed_byte_is_noticed(kept: Kept, tmp_path: Path) -> None:
    known = records(ids(0, 3))
    kept.remember(KIND, known)
    (file,) = files(tmp_path)
    data = file.read_bytes()
    for at in range(0, len(data), 7):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert kept.recall(KIND, ids(0, 3)) == [None] * 3


def test_many_files_become_one(kept: Kept, tmp_path: Path) -> None:
    known = records(ids(0, 40))
    for each in known:
        kept.remember(KIND, [each])
    assert len(files(tmp_path)) == 40
    expected = [record for _, record in known]
    assert kept.recall(KIND, ids(0, 40)) == expected
    assert len(files(tmp_path)) == 1
    assert other_process(tmp_path).recall(KIND, ids(0, 40)) == expected


def test_what_was_not_used_for_the_longest_time_makes_room(
    kept: Kept, tmp_path: Path
) -> None:
    for number in range(3):
        kept.remember(KIND, records(ids(10 * number, 10)))
    for age, file in zip((1, 3, 2), files(tmp_path), strict=True):
        os.utime(file, (1e9 - age, 1e9 - age))
    oldest, size_bytes = files(tmp_path)[1], files(tmp_path)[0].stat().st_size
    limited = other_process(tmp_path, most_bytes=int(3.5 * size_bytes))
    limited.remember(KIND, records(ids(30, 10)))
    assert oldest not in files(tmp_path)
    assert len(files(tmp_path)) == 3
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 3.5 * size_bytes


def test_nothing_is_kept_if_nothing_may_be(tmp_path: Path) -> None:
    off = other_process(tmp_path, most_bytes=0)
    off.remember(KIND, records(ids(0, 5)))
    assert off.recall(KIND, ids(0, 5)) == [None] * 5
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_directory_that_others_may_use_is_not_used(
    kept: Kept, tmp_path: Path, mode: int
) -> None:
    known = records(ids(0, 5))
    kept.remember(KIND, known)
    (tmp_path / "kept").chmod(mode)
    assert kept.recall(KIND, ids(0, 5)) == [None] * 5
    kept.remember(KIND, records(ids(5, 5)))
    assert len(files(tmp_path)) == 1


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    kept = other_process(tmp_path)
    kept.remember(KIND, records(ids(0, 5)))
    assert kept.recall(KIND, ids(0, 5)) == [None] * 5


def test_the_directory_is_private_and_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    Kept(ROOT, None, 1 << 20).remember(KIND, records(ids(0, 1)))
    top = tmp_path / "caches" / "sparkcache"
    assert top.stat().st_mode & 0o777 == 0o700
    assert len(files(top)) == 1


def test_a_storage_recalls_for_any_object_in_order(store: Store) -> None:
    asked = [ObjectId(f"{store.storage.root}/{number}", 1, "v") for number in range(3)]
    store.storage.remember(KIND, [(asked[1], b"record")])
    recalled = store.storage.recall(KIND, asked)
    assert len(recalled) == len(asked)
    assert recalled[0] is recalled[2] is None
    assert recalled[1] in (b"record", None)


def test_a_storage_in_s3_keeps_as_configured(tmp_path: Path) -> None:
    config = StorageConfig(plan_cache_path=str(tmp_path / "kept"))
    (known,) = ids(0, 1)
    open_storage(ROOT, config, Traffic()).remember(KIND, [(known, b"record")])
    assert open_storage(ROOT, config, Traffic()).recall(KIND, [known]) == [b"record"]
