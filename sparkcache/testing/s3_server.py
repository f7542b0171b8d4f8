"""An S3 server for tests and demos: moto's, in a process of its own.

It is on loopback, keeps everything in memory, takes any credentials, and counts what
it sends. `python -m sparkcache.testing.s3_server` is that process; it is spoken to in
lines of JSON, and ends when its standard input or its parent does.

Needs the extra `testing`.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING, Self

import msgspec

from sparkcache.testing.s3_messages import (
    Answer,
    Behave,
    Behaviour,
    Command,
    Fault,
    Forget,
    Heal,
    Inject,
    Request,
    Tell,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mypy_boto3_s3.client import S3Client

    from sparkcache.testing.s3_app import WatchedApp

__all__ = ["ObjectCount", "Request", "S3Server"]

HOST = "127.0.0.1"
REGION = "us-east-1"
_START_TIMEOUT_S = 60.0
_KEPT_IN_MEMORY_BYTES = 1 << 40


@dataclass(slots=True)
class ObjectCount:
    """What was asked of one object, or of several together.

    Attributes:
        gets: GET requests, refused ones and those that broke off included.
        sent_bytes: Bytes of content that were sent in answer.

    """

    gets: int = 0
    sent_bytes: int = 0


class S3Server:
    """A server, for as long as it is entered. Thread-safe.

    Example:
        >>> with S3Server() as server, server.as_environment():
        ...     server.put("bucket", "key", b"data", {"role": "data"})
        ...     ...
        ...     server.counts()["bucket/key"].gets

    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._port = 0

    def __repr__(self) -> str:
        return f"S3Server({self.endpoint if self._process else 'not running'})"

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self._port = self._hear(_START_TIMEOUT_S).port
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._log is not None
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            assert pipe is not None
            pipe.close()
        if "client" in vars(self):
            self.client.close()
            del self.client
        self._process = self._log = None

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{HOST}:{self._port}"

    def environment(self) -> dict[str, str]:
        """Return what boto3 must find in the environment to speak to this server."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextmanager
    def as_environment(self) -> Iterator[None]:
        """Make `environment()` all that this process says of AWS, within a block.

        Processes that are started within see it too.
        """
        before = {key: text for key, text in os.environ.items() if _is_of_aws(key)}
        for key in before:
            del os.environ[key]
        os.environ.update(self.environment())
        try:
            yield
        finally:
            for key in filter(_is_of_aws, list(os.environ)):
                del os.environ[key]
            os.environ.update(before)

    @cached_property
    def client(self) -> S3Client:
        """A client of boto3 for this server; for what has no method here."""
        import boto3
        from botocore.client import Config

        with self._lock, self.as_environment():
            return boto3.session.Session().client(
                "s3", config=Config(s3={"addressing_style": "path"})
            )

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket, if it is not there."""
        self.client.create_bucket(Bucket=bucket)

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Store an object in a bucket, in the place of what had its key."""
        self.client.put_object(
            Bucket=bucket, Key=key, Body=data, Metadata=metadata or {}
        )

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=bucket, Key=key)

    def requests(self) -> list[Request]:
        """Return all requests since the last `forget`, in the order they came."""
        return self._ask(Tell()).requests

    def counts(self) -> dict[str, ObjectCount]:
        """Return what was read since the last `forget`: by `bucket/key`.

        Listings of a bucket are under `bucket/`.
        """
        counts: dict[str, ObjectCount] = defaultdict(ObjectCount)
        for request in self.requests():
            if request.method == "GET":
                count = counts[f"{request.bucket}/{request.key}"]
                count.gets += 1
                if request.status < 300:
                    count.sent_bytes += request.sent_bytes
        return dict(counts)

    def forget(self) -> None:
        """Count from nothing on."""
        self._ask(Forget())

    def fail(
        self,
        key: str = "",
        *,
        status: int = 500,
        code: str = "InternalError",
        times: int | None = 1,
    ) -> None:
        """Answer the next requests with an error.

        Args:
            key: A regular expression to be found in the key; the empty one is found
                in listings, too.
            status: The HTTP status, such as 503.
            code: S3's name for the error, such as `SlowDown`.
            times: How many requests; None for all until `heal`.

        """
        self._ask(Inject(Fault(key, times, status=status, code=code)))

    def refuse(self, key: str = "", *, times: int | None = None) -> None:
        """Deny access: to all requests, if not told how many."""
        self.fail(key, status=403, code="AccessDenied", times=times)

    def break_off(
        self, key: str = "", *, after_bytes: int, times: int | None = 1
    ) -> None:
        """Hang up in the midst of the next answers, after so many bytes of body."""
        self._ask(Inject(Fault(key, times, after_bytes=after_bytes)))

    def ignore(self, *headers: str, key: str = "", times: int | None = None) -> None:
        """Pass over headers of requests, as servers do that are not quite S3."""
        self._ask(Inject(Fault(key, times, without=headers)))

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._ask(Heal())

    def behave(self, *, latency_s: float = 0.0, page_keys: int = 1000) -> None:
        """Say how slow it is, and how long a page of a listing may be."""
        self._ask(Behave(Behaviour(latency_s, page_keys)))

    def _ask(self, command: Command) -> Answer:
        if self._process is None:
            raise RuntimeError("the S3 server is not running: use it as `with`")
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()
            return self._hear(_START_TIMEOUT_S)

    def _hear(self, timeout_s: float) -> Answer:
        assert self._process is not None
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], timeout_s)[0]:
            line = self._process.stdout.readline()
            if line:
                return msgspec.json.decode(line, type=Answer)
        assert self._log is not None
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        raise RuntimeError(f"the S3 server does not answer:\n{log}")


def _is_of_aws(variable: str) -> bool:
    return variable.startswith("AWS_")


def _main() -> None:
    """Serve until there is nobody left to serve."""
    threading.Thread(
        target=_end_with, args=(os.pidfd_open(os.getppid()),), daemon=True
    ).start()
    commands = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed is no answer
    app, port = _serve()
    answers.write(msgspec.json.encode(Answer(port)) + b"\n")
    answers.flush()
    for line in commands:
        command = msgspec.json.decode(line, type=Command)
        answers.write(msgspec.json.encode(_obey(app, command, port)) + b"\n")
        answers.flush()


def _end_with(pidfd: int) -> None:
    """End when a process does. Its end of a pipe may outlive it, in its children."""
    select.select([pidfd], [], [])
    os._exit(0)


def _serve() -> tuple[WatchedApp, int]:
    """Begin to serve, in daemon threads; return the port."""
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(_KEPT_IN_MEMORY_BYTES)
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    from sparkcache.testing.s3_app import WatchedApp

    class Silent(MotoRequestHandler):
        def log_request(self, *_: object) -> None:
            """Leave the log to what goes wrong."""

    app = WatchedApp(create_backend_app("s3"))
    server = make_server(HOST, 0, app, threaded=True, request_handler=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return app, server.port


def _obey(app: WatchedApp, command: Command, port: int) -> Answer:
    match command:
        case Behave():
            app.behaviour = command.behaviour
        case Inject():
            app.inject(command.fault)
        case Heal():
            app.heal()
        case Forget():
            app.forget()
        case Tell():
            return Answer(port, app.requests())
    return Answer(port)


if __name__ == "__main__":
    _main()
