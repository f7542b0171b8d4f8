"""What S3 and boto3 report, as a SourceError that says what was expected and found."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from urllib3.exceptions import HTTPError

from sparkcache.errors import CredentialsError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKEN = (BotoCoreError, HTTPError, OSError)
"""Errors of a connection that ends or is silent while a body is read."""

_CREDENTIALS = "credentials in the environment, a profile or the machine's role"
_NONE = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_PERMISSION = ("permission to read", "access denied")
_REFUSED_BY_CODE = {
    "AccessDenied": _PERMISSION,
    "Forbidden": _PERMISSION,
    "403": _PERMISSION,
    "ExpiredToken": ("valid credentials", "an expired session token: ExpiredToken"),
    "InvalidToken": ("valid credentials", "a rejected session token: InvalidToken"),
    "RequestExpired": ("valid credentials", "an expired signature: RequestExpired"),
    "InvalidAccessKeyId": ("valid credentials", "a rejected access key"),
    "SignatureDoesNotMatch": ("valid credentials", "a rejected signature"),
}
_BY_CODE = {
    "NoSuchBucket": ("a bucket with this name", "none"),
    "NoSuchKey": ("the object that was planned", "none with this name"),
    "404": ("the object that was planned", "none with this name"),
    "InvalidObjectState": ("an object that can be read", "an archived one"),
    "InvalidRange": ("bytes at this offset", "the end of the object before it"),
}
_SSE_C = "Server Side Encryption"
"""In the message of S3's response if a request lacks the key of an object."""


def is_refused(error: Exception) -> bool:
    """Return whether a request failed because of its credentials, or for want of any.

    Other credentials may be accepted.
    """
    if isinstance(error, ClientError):
        return _code(error) in _REFUSED_BY_CODE
    return isinstance(error, _NONE)


@contextmanager
def translated(
    uri: str, offset: int | None = None, version: str = ""
) -> Iterator[None]:
    """Convert errors of boto3 into a SourceError about this object."""
    try:
        yield
    except ClientError as error:
        code = _code(error)
        if code in {"PreconditionFailed", "412"}:
            raise overwritten(uri, version) from error
        if code in _REFUSED_BY_CODE:
            expected, found = _REFUSED_BY_CODE[code]
            raise CredentialsError(
                uri, offset=offset, expected=expected, found=found
            ) from error
        expected, found = _BY_CODE.get(code, ("a response", str(error)))
        if code == "InvalidRequest" and _SSE_C in str(error):
            expected = "an object that S3 decrypts by itself"
            found = "one that is encrypted with a customer's key (SSE-C)"
        raise SourceError(uri, offset=offset, expected=expected, found=found) from error
    except NoCredentialsError as error:
        raise CredentialsError(uri, expected=_CREDENTIALS, found="none") from error
    except _NONE as error:
        raise CredentialsError(uri, expected=_CREDENTIALS, found=str(error)) from error
    except (*BROKEN, ValueError) as error:  # ValueError: an invalid URL or region name
        raise SourceError(
            uri, offset=offset, expected="a response", found=str(error)
        ) from error


def overwritten(uri: str, version: str) -> SourceError:
    """Return the error about an object of which only another version is stored."""
    return SourceError(
        uri, expected=f"version {version}, as planned", found="it was overwritten"
    )


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "?")
