"""Ranged reads of stored objects: S3 through boto3, and local directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.config import CacheConfig
from sparkcache.errors import ConfigError
from sparkcache.storage.local import LocalStorage
from sparkcache.storage.traffic import Traffic

if TYPE_CHECKING:
    from sparkcache.connector import Storage

__all__ = [
    "LocalStorage",
    "Traffic",
    "normal_root",
    "open_storage",
    "storage_settings",
]

_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})


def normal_root(path: str) -> str:
    """Return the one URI of a root that users may write in several ways.

    `s3a://bucket/x/` is `s3://bucket/x`, `/data` is `file:///data`. Raises ConfigError
    for a scheme that there is no storage for.
    """
    scheme, _, place = path.partition(":") if path[:1] != "/" else ("file", "", path)
    name = place.removeprefix("//")
    if scheme.lower() in _S3_SCHEMES and place != name != "" and name[0] != "/":
        return f"s3://{name.rstrip('/')}"
    if scheme.lower() == "file" and name.startswith("/"):
        return f"file://{name.rstrip('/')}"
    raise ConfigError(
        f"path={path!r}: must be s3://bucket, s3://bucket/prefix, or an absolute path "
        "of a directory"
    )


def storage_settings(config: CacheConfig) -> CacheConfig:
    """Return what matters to a storage, and the defaults of all else."""
    return CacheConfig(
        endpoint=config.endpoint,
        region=config.region,
        path_style=config.path_style,
        storage_attempts=config.storage_attempts,
        storage_timeout_s=config.storage_timeout_s,
    )


def open_storage(root: str, config: CacheConfig, traffic: Traffic) -> Storage:
    """Return the storage below a root, given as `normal_root` returns it.

    What S3 needs is imported here, since most of Spark's Python processes read nothing.
    """
    if root.startswith("s3://"):
        from sparkcache.storage.s3 import S3Storage

        return S3Storage(root, config, traffic)
    return LocalStorage(root, traffic)
