"""An S3 server that checks signatures: Versity's gateway, in a separate process.

`make gateway` builds it. Unlike moto it refuses unknown credentials, and it sends files
with a fraction of the processor's time; but it does not tell what it has sent.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.client import Config

from sparkcache.testing.s3_server import HOST, REGION
from tests.needs import lacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mypy_boto3_s3.client import S3Client

    from sparkcache_pulsar.testing import StoredObject

PROGRAM = "versitygw"
_BUILT = Path(__file__).parents[1] / ".venv" / "bin"
_START_TIMEOUT_S = 30.0


def find() -> str | None:
    """Return the path of the program; None if it is not installed."""
    places = os.pathsep.join([str(_BUILT), os.environ.get("PATH", "")])
    return shutil.which(PROGRAM, path=places)


def need() -> str:
    """Return the path of the program; skip the test, or fail it, if there is none."""
    program = find()
    if program is None:
        lacks(f"missing: {PROGRAM} (make gateway, which needs Go 1.25)")
    return program


@dataclass(frozen=True)
class Gateway:
    """A running server, and the credentials of its owner."""

    program: str
    port: int
    key_id: str
    secret: str

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @contextmanager
    def client(self) -> Iterator[S3Client]:
        """Yield a client with the owner's credentials."""
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.key_id,
            aws_secret_access_key=self.secret,
            config=Config(s3={"addressing_style": "path"}),
        )
        try:
            yield client
        finally:
            client.close()

    def put(self, bucket: str, objects: Iterable[StoredObject]) -> None:
        """Store objects in a bucket, which is created if need be."""
        with self.client() as client:
            with suppress(client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=bucket)
            for stored in objects:
                client.put_object(
                    Bucket=bucket,
                    Key=stored.key,
                    Body=stored.data,
                    Metadata=stored.metadata,
                )

    def admit(self, key_id: str, secret: str) -> None:
        """Accept other credentials, too."""
        self._administer(
            "create-user", "--access", key_id, "--secret", secret, "--role", "admin"
        )

    def dismiss(self, key_id: str) -> None:
        """Accept credentials no longer."""
        self._administer("delete-user", "--access", key_id)

    def _administer(self, *command: str) -> None:
        subprocess.run(
            [self.program, "admin", *command],
            check=True,
            capture_output=True,
            env={
                "ADMIN_ACCESS_KEY_ID": self.key_id,
                "ADMIN_SECRET_ACCESS_KEY": self.secret,
                "ADMIN_ENDPOINT_URL": self.endpoint,
                "ADMIN_REGION": REGION,
            },
        )


@contextmanager
def serve(program: str, *, key_id: str, secret: str) -> Iterator[Gateway]:
    """Serve an empty directory to its owner, who has these credentials."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        directory = Path(name)
        for part in ("buckets", "metadata", "users"):
            (directory / part).mkdir()
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        free.close()
        server = subprocess.Popen(
            [
                *(program, "--port", f"{HOST}:{port}", "--keep-alive", "--quiet"),
                *("--iam-dir", str(directory / "users"), "--iam-cache-disable"),
                *("posix", "--sidecar", str(directory / "metadata")),
                str(directory / "buckets"),
            ],
            env={
                "PATH": os.environ.get("PATH", ""),
                "ROOT_ACCESS_KEY_ID": key_id,
                "ROOT_SECRET_ACCESS_KEY": secret,
                "VGW_REGION": REGION,
            },
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait_for(server, port)
            yield Gateway(program, port, key_id, secret)
        finally:
            server.kill()
            server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((HOST, port)).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{PROGRAM} does not listen") from None
            time.sleep(0.05)
        else:
            return
