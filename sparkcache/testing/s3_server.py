"""S3 server for tests and demos: moto in a separate process.

It listens on loopback, keeps everything in memory, accepts any credentials, and counts
the bytes it sends. The process is `python -m sparkcache.testing.s3_server`; it receives
commands as lines of JSON, and ends with its standard input or its parent.

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
    """Counts of requests for one object, or for several together.

    Attributes:
        gets: GET requests, including refused ones and those that broke off.
        sent_bytes: Bytes of content sent in response.

    """

    gets: int = 0
    sent_bytes: int = 0


class S3Server:
    """An S3 server that runs while the context is entered. Thread-safe.

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
            self._port = self._receive(_START_TIMEOUT_S).port
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
        """URL of the server."""
        return f"http://{HOST}:{self._port}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which boto3 uses this server."""
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
        """Replace all AWS variables of this process by `environment()` in a block.

        Processes that are started within the block inherit them.
        """
        before = {key: text for key, text in os.environ.items() if _is_aws(key)}
        for key in before:
            del os.environ[key]
        os.environ.update(self.environment())
        try:
            yield
        finally:
            for key in filter(_is_aws, list(os.environ)):
                del os.environ[key]
            os.environ.update(before)

    @cached_property
    def client(self) -> S3Client:
        """boto3 client for this server, for operations without a method here."""
        import boto3
        from botocore.client import Config

        with self._lock, self.as_environment():
            return boto3.session.Session().client(
                "s3", config=Config(s3={"addressing_style": "path"})
            )

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket, if it does not exist."""
        self.client.create_bucket(Bucket=bucket)

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Store an object in a bucket, replacing any object with the same key."""
        self.client.put_object(
            Bucket=bucket, Key=key, Body=data, Metadata=metadata or {}
        )

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=bucket, Key=key)

    def requests(self) -> list[Request]:
        """Return all requests since the last `forget`, in order of arrival."""
        return self._send(Tell()).requests

    def counts(self) -> dict[str, ObjectCount]:
        """Return counts of reads since the last `forget`, by `bucket/key`.

        Listings of a bucket are counted under `bucket/`.
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
        """Forget all requests so far."""
        self._send(Forget())

    def fail(
        self,
        key: str = "",
        *,
        status: int = 500,
        code: str = "InternalError",
        message: str = "",
        times: int | None = 1,
    ) -> None:
        """Respond to the next requests with an error.

        Args:
            key: A regular expression that is searched in the key; an empty one matches
                listings, too.
            status: The HTTP status, such as 503.
            code: S3's error code, such as `SlowDown`.
            message: The error's text; empty for the name of the status.
            times: How many requests fail; None for all until `heal`.

        """
        fault = Fault(key, times, status=status, code=code, message=message)
        self._send(Inject(fault))

    def refuse(self, key: str = "", *, times: int | None = None) -> None:
        """Deny access to requests: to all of them unless `times` is set."""
        self.fail(key, status=403, code="AccessDenied", times=times)

    def break_off(
        self, key: str = "", *, after_bytes: int, times: int | None = 1
    ) -> None:
        """Close the connection of the next responses after `after_bytes` of body."""
        self._send(Inject(Fault(key, times, after_bytes=after_bytes)))

    def ignore(self, *headers: str, key: str = "", times: int | None = None) -> None:
        """Ignore headers of requests, as servers do that are not fully compatible."""
        self._send(Inject(Fault(key, times, without=headers)))

    def hide(self, *headers: str, key: str = "", times: int | None = None) -> None:
        """Leave headers out of responses, as servers do that are not compatible."""
        self._send(Inject(Fault(key, times, hidden=headers)))

    def heal(self) -> None:
        """Remove all faults."""
        self._send(Heal())

    def behave(self, *, latency_s: float = 0.0, page_keys: int = 1000) -> None:
        """Set the latency, and the maximum number of keys on a page of a listing."""
        self._send(Behave(Behaviour(latency_s, page_keys)))

    def _send(self, command: Command) -> Answer:
        if self._process is None:
            raise RuntimeError("the S3 server is not running: use it as `with`")
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()
            return self._receive(_START_TIMEOUT_S)

    def _receive(self, timeout_s: float) -> Answer:
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


def _is_aws(variable: str) -> bool:
    return variable.startswith("AWS_")


def _main() -> None:
    """Serve until standard input or the parent process ends."""
    threading.Thread(
        target=_exit_with, args=(os.pidfd_open(os.getppid()),), daemon=True
    ).start()
    commands = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with answers
    app, port = _serve()
    answers.write(msgspec.json.encode(Answer(port)) + b"\n")
    answers.flush()
    for line in commands:
        command = msgspec.json.decode(line, type=Command)
        answers.write(msgspec.json.encode(_execute(app, command, port)) + b"\n")
        answers.flush()


def _exit_with(pidfd: int) -> None:
    """Exit when a process ends; its children may keep its end of a pipe open."""
    select.select([pidfd], [], [])
    os._exit(0)


def _serve() -> tuple[WatchedApp, int]:
    """Start serving in daemon threads; return the application and the port."""
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(_KEPT_IN_MEMORY_BYTES)
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    from sparkcache.testing.s3_app import WatchedApp

    class Silent(MotoRequestHandler):
        def log_request(self, *_: object) -> None:
            """Log nothing: the log is for errors."""

    app = WatchedApp(create_backend_app("s3"))
    server = make_server(HOST, 0, app, threaded=True, request_handler=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return app, server.port


def _execute(app: WatchedApp, command: Command, port: int) -> Answer:
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
