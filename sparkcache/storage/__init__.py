"""Ranged reads of stored objects: S3 through boto3 and obstore, local directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache.storage.local import LocalStorage
from sparkcache.storage.traffic import Traffic

if TYPE_CHECKING:
    from sparkcache.config import StorageConfig
    from sparkcache.connector import Storage

__all__ = [
    "LocalStorage",
    "Traffic",
    "normal_root",
    "open_storage",
]

_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})


def normal_root(path: str) -> str:
    """Return the canonical URI of a root, which users may write in several ways.

    `s3a://bucket/x/` becomes `s3://bucket/x`, `/data` becomes `file:///data`. Raises
    ConfigError for a scheme without a storage.
    """
    scheme, _, rest = path.partition(":") if path[:1] != "/" else ("file", "", path)
    name = rest.removeprefix("//")
    if scheme.lower() in _S3_SCHEMES and rest != name != "" and name[0] != "/":
        return f"s3://{name.rstrip('/')}"
    if scheme.lower() == "file" and name.startswith("/"):
        return f"file://{name.rstrip('/')}"
    raise ConfigError(
        f"path={path!r}: must be s3://bucket, s3://bucket/prefix, or an absolute path "
        "of a directory"
    )


def open_storage(root: str, config: StorageConfig, traffic: Traffic) -> Storage:
    """Return the storage of a root, a URI as `normal_root` returns it.

    The libraries for S3 are imported only here, because most of Spark's Python
    processes read nothing.
    """
    if root.startswith("s3://"):
        from sparkcache.storage.s3 import S3Storage

        return S3Storage(root, config, traffic)
    return LocalStorage(root, traffic)
