"""The package that decrypting takes."""

from sparkcache.errors import ConfigError


def require_cryptography() -> None:
    """Raise ConfigError if it is missing."""
    try:
        from cryptography.hazmat.primitives.ciphers import aead  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "option privateKey: to decrypt, pip install 'sparkcache[encryption]'"
        ) from error
