"""The canonical URI of a root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkcache.config import StorageConfig
from sparkcache.errors import ConfigError
from sparkcache.storage import Traffic, normal_root, open_storage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        pytest.param("s3://bucket", "s3://bucket", id="a bucket"),
        pytest.param("s3a://bucket/", "s3://bucket", id="as Hadoop spells it"),
        pytest.param("S3N://Bucket/x/", "s3://Bucket/x", id="a scheme has no case"),
        pytest.param("s3://bucket/a/b", "s3://bucket/a/b", id="a prefix"),
        pytest.param("s3://bucket/a#b?c", "s3://bucket/a#b?c", id="no URL syntax"),
        pytest.param("/data/topics/", "file:///data/topics", id="a path"),
        pytest.param("file:/data", "file:///data", id="as Java spells it"),
        pytest.param("file:///a b#c", "file:///a b#c", id="no URL syntax here"),
        pytest.param("/", "file://", id="the root directory"),
    ],
)
def test_normal_root(raw: str, normal: str) -> None:
    assert normal_root(raw) == normal
    assert normal_root(normal + "/") == normal


@pytest.mark.parametrize(
    "raw",
    ["", "data", "s3:bucket", "s3://", "s3:///x", "file://host/x", "gs://b", "file:x"],
)
def test_invalid_roots(raw: str) -> None:
    with pytest.raises(ConfigError, match="s3://bucket/prefix") as caught:
        normal_root(raw)
    assert repr(raw) in str(caught.value)


def test_a_directory_with_an_odd_name(tmp_path: Path) -> None:
    directory = tmp_path / "a b#c?d%20"
    directory.mkdir()
    (directory / "x").write_bytes(b"1")
    root = normal_root(f"{directory}/")
    (listed,) = open_storage(root, StorageConfig(), Traffic()).list()
    assert listed.uri == f"{root}/x"


def test_links_are_not_followed_in_circles(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    storage = open_storage(normal_root(str(tmp_path)), StorageConfig(), Traffic())
    names = [stored.uri.rpartition("/")[2] for stored in storage.list()]
    assert names == ["link", "x"]
