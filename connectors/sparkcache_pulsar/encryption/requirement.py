"""The package that decryption requires."""

from sparkcache.errors import ConfigError


def require_cryptography() -> None:
    """Raise ConfigError if `cryptography` is missing."""
    try:
        from cryptography.hazmat.primitives.ciphers import aead  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "option privateKey: to decrypt, pip install 'sparkcache[encryption]'"
        ) from error
