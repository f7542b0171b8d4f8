"""Private keys in files, and the data keys that they decrypt. Needs `cryptography`.

Files are read once, and again when they change. Data keys are remembered by their
encrypted bytes, in this process.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from sparkcache.errors import SourceError
from sparkcache_pulsar.encryption.ecies import unseal

_PEM = "a PEM file with the private key that option privateKey names"
_MAX_FILE_BYTES = 1 << 20


class KeyFile(NamedTuple):
    """One version of a file with a private key."""

    path: str
    inode: int
    time_ns: int
    size_bytes: int

    @classmethod
    def at(cls, path: str) -> KeyFile:
        """Return a file's version; raises SourceError if it cannot hold a key."""
        try:
            status = Path(path).stat()
        except OSError as error:
            raise _source_error(path, error) from error
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            found = f"no regular file of at most {_MAX_FILE_BYTES} bytes"
            raise SourceError(path, expected=_PEM, found=found)
        return cls(path, status.st_ino, status.st_mtime_ns, status.st_size)


class DataKey:
    """The symmetric key that payloads are encrypted with."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def open(self, parameter: bytes, payload: memoryview) -> bytes | None:
        """Decrypt a payload; None if it was changed, or encrypted with another key."""
        try:
            return self._cipher.decrypt(parameter, payload, None)
        except InvalidTag:
            return None


@lru_cache(maxsize=256)
def open_data_key(file: KeyFile, encrypted: bytes) -> DataKey | None:
    """Decrypt a data key; None if it was encrypted for another private key.

    Raises SourceError if the file has no usable private key.
    """
    key = _private_key(file)
    try:
        if isinstance(key, rsa.RSAPrivateKey):
            return DataKey(key.decrypt(encrypted, _oaep()))
        return DataKey(unseal(key, encrypted))
    except (ValueError, UnsupportedAlgorithm):
        return None


def _oaep() -> padding.OAEP:
    sha1 = SHA1()  # noqa: S303 - required by Pulsar
    return padding.OAEP(padding.MGF1(sha1), sha1, label=None)


@lru_cache(maxsize=16)
def _private_key(file: KeyFile) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(Path(file.path).read_bytes(), password=None)
    except OSError as error:
        raise _source_error(file.path, error) from error
    except TypeError as error:
        found = "a private key that has a password"
        raise SourceError(file.path, expected=_PEM, found=found) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        found = f"a file that does not parse as such: {error}"
        raise SourceError(file.path, expected=_PEM, found=found) from error
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        found = f"{type(key).__name__}, which is neither an RSA nor an EC key"
        raise SourceError(file.path, expected=_PEM, found=found)
    return key


def _source_error(path: str, error: OSError) -> SourceError:
    return SourceError(path, expected=_PEM, found=error.strerror or str(error))
