"""A fast S3 server on this machine, where one is installed: Versity's gateway.

    go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

It is looked for on the path and where Go puts what it builds. It serves files with
sendfile, and so takes a fraction of what moto takes of the processor; but it does not
tell how many bytes it has sent.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcache.testing.s3_server import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROGRAM = "versitygw"
_START_TIMEOUT_S = 30.0


def find() -> str | None:
    """Return the path of the program; None if it is not installed."""
    go = Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin"
    places = os.environ.get("GOBIN"), str(go), os.environ.get("PATH")
    return shutil.which(PROGRAM, path=os.pathsep.join(filter(None, places)))


@contextmanager
def serve(program: str, credentials: Mapping[str, str]) -> Iterator[str]:
    """Serve an empty directory to clients with the credentials; yield the URL."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        directory = Path(name)
        for part in ("buckets", "metadata"):
            (directory / part).mkdir()
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        free.close()
        server = subprocess.Popen(
            [
                *(program, "--port", f"{HOST}:{port}", "--keep-alive", "--quiet"),
                *("posix", "--sidecar", str(directory / "metadata")),
                str(directory / "buckets"),
            ],
            env={
                "PATH": os.environ.get("PATH", ""),
                "ROOT_ACCESS_KEY": credentials["AWS_ACCESS_KEY_ID"],
                "ROOT_SECRET_KEY": credentials["AWS_SECRET_ACCESS_KEY"],
                "VGW_REGION": credentials["AWS_DEFAULT_REGION"],
            },
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait_for(server, port)
            yield f"http://{HOST}:{port}"
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
