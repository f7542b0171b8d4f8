"""Messages between the embedded S3 server and the process that started it."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct):
    """One request, as the server saw it.

    Attributes:
        method: `GET`, `HEAD`, `PUT`...
        bucket: Empty for a request about all buckets.
        key: Empty for a request about a bucket, such as a listing.
        range: Its `Range` header; empty if it had none.
        region: The region it was signed for; empty if it was not signed.
        payer: Who pays for it; empty for the owner of the bucket.
        status: HTTP status of the response; 0 before there is one.
        sent_bytes: Bytes of the response's body passed to the network so far.

    """

    method: str
    bucket: str
    key: str
    range: str = ""
    region: str = ""
    payer: str = ""
    status: int = 0
    sent_bytes: int = 0


class Fault(msgspec.Struct, frozen=True):
    """A fault injected into requests. The first fault that matches applies.

    Attributes:
        key: A regular expression that is searched in the key; an empty one matches
            listings, too.
        times: How many requests it affects; None for all.
        status: Respond with this status only; None for a normal response.
        code: The error code that goes with the status.
        message: The text that goes with them; empty for the name of the status.
        after_bytes: Break off the body of the response after this many bytes.
        without: Names of request headers that are ignored, such as `If-Match`.
        hidden: Names of response headers that are not sent, such as `ETag`.

    """

    key: str = ""
    times: int | None = 1
    status: int | None = None
    code: str = "InternalError"
    message: str = ""
    after_bytes: int | None = None
    without: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class Behaviour(msgspec.Struct, frozen=True):
    """How the server responds to requests without a fault.

    Attributes:
        latency_s: How long each request waits before it is processed.
        page_keys: The maximum number of keys on a page of a listing.

    """

    latency_s: float = 0.0
    page_keys: int = 1000


class Behave(msgspec.Struct, frozen=True, tag=True):
    """Set the behaviour from now on."""

    behaviour: Behaviour


class Inject(msgspec.Struct, frozen=True, tag=True):
    """Add a fault."""

    fault: Fault


class Heal(msgspec.Struct, frozen=True, tag=True):
    """Remove all faults."""


class Tell(msgspec.Struct, frozen=True, tag=True):
    """Return the requests seen so far."""


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Forget the requests seen so far."""


Command = Behave | Inject | Heal | Tell | Forget


class Answer(msgspec.Struct, frozen=True):
    """Reply to a command. The first one is sent without a command, for the port."""

    port: int
    requests: list[Request] = []
