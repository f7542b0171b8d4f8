"""What the embedded S3 server and whoever started it say to each other."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct):
    """One request, as the server saw it.

    Attributes:
        method: `GET`, `HEAD`, `PUT`...
        bucket: Empty for a request about all buckets.
        key: Empty for a request about a bucket, such as a listing.
        range: Its `Range` header; empty if it had none.
        region: What it was signed for; empty if it was not signed.
        status: What it was answered with; 0 if it has not been yet.
        sent_bytes: Bytes of the answer's body handed to the network so far.

    """

    method: str
    bucket: str
    key: str
    range: str = ""
    region: str = ""
    status: int = 0
    sent_bytes: int = 0


class Fault(msgspec.Struct, frozen=True):
    """What goes wrong with requests for objects. Of several, the first one applies.

    Attributes:
        key: A regular expression to be found in a key; the empty one is found in
            listings, too.
        times: How often; None for always.
        status: Answer with this status and nothing else.
        code: The error code that goes with the status.
        after_bytes: Break the answer's body off after so many bytes.
        without: Names of headers that are passed over, such as `If-Match`.

    """

    key: str = ""
    times: int | None = 1
    status: int | None = None
    code: str = "InternalError"
    after_bytes: int | None = None
    without: tuple[str, ...] = ()


class Behaviour(msgspec.Struct, frozen=True):
    """How the server answers while nothing goes wrong.

    Attributes:
        latency_s: How long each request waits before it is looked at.
        page_keys: How many keys a page of a listing has at most.

    """

    latency_s: float = 0.0
    page_keys: int = 1000


class Behave(msgspec.Struct, frozen=True, tag=True):
    """Behave so from now on."""

    behaviour: Behaviour


class Inject(msgspec.Struct, frozen=True, tag=True):
    """Let this go wrong, too."""

    fault: Fault


class Heal(msgspec.Struct, frozen=True, tag=True):
    """Let nothing go wrong any more."""


class Tell(msgspec.Struct, frozen=True, tag=True):
    """Tell the requests seen so far."""


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Forget the requests seen so far."""


Command = Behave | Inject | Heal | Tell | Forget


class Answer(msgspec.Struct, frozen=True):
    """To each command one; to the first, which nobody gives, the port."""

    port: int
    requests: list[Request] = []
