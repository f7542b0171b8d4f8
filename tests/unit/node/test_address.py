"""Where a node is reached, by whom, and for how long it lives."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sparkcache.errors import CacheUnavailable
from sparkcache.node.address import Address, require_same_user
from sparkcache.node.lifetime import executor_pid, watch


@pytest.mark.parametrize(
    ("value", "directory"),
    [
        pytest.param("/a/b", "/a/b/sparkcache", id="the executor's directory"),
        pytest.param("/a,/b,/c", "/a/sparkcache", id="the first of several"),
    ],
)
def test_all_tasks_of_an_executor_share_an_address(
    monkeypatch: pytest.MonkeyPatch, value: str, directory: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", value)
    assert str(Address.of_this_executor().directory) == directory


def test_outside_of_an_executor_there_is_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with pytest.raises(CacheUnavailable, match="SPARK_LOCAL_DIRS"):
        Address.of_this_executor()


@pytest.mark.parametrize("length", [1, 107, 108, 200], ids=lambda n: f"{n} bytes")
def test_paths_of_any_length_are_reached(tmp_path: Path, length: int) -> None:
    directory = tmp_path / ("x" * length)
    directory.mkdir()
    address = Address(directory)
    address.prepare()
    address.prepare()
    assert stat.S_IMODE(address.directory.stat().st_mode) == 0o700
    for _ in range(2):  # the second one replaces what the first left
        with closing(address.listen()) as listener, closing(address.connect(1)) as ours:
            theirs, _ = listener.accept()
            with closing(theirs):
                ours.sendall(b"x")
                assert theirs.recv(1) == b"x"
        with pytest.raises(ConnectionRefusedError):
            address.connect(1)
    address.remove_socket()
    address.remove_socket()
    with pytest.raises(FileNotFoundError):
        address.connect(1)


def test_a_directory_that_is_open_to_others_is_not_used(tmp_path: Path) -> None:
    address = Address(tmp_path)
    address.directory.mkdir(mode=0o750)
    with pytest.raises(CacheUnavailable, match="open to other users"):
        address.prepare()


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can be somebody else")
def test_other_users_are_refused() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with closing(ours), closing(theirs):
        require_same_user(ours)
        pid = os.fork()
        if not pid:
            os.setuid(65534)
            try:
                require_same_user(ours)
            except PermissionError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def run_below(name: str, code: str) -> list[str]:
    """Run code in a child of a child of a process of some name."""
    child = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {code!r}], check=True)
"""
    parent = f"""
import os, pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text({name!r})
print(os.getpid(), flush=True)
subprocess.run([sys.executable, "-c", {child!r}], check=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", parent],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return done.stdout.split()


CODE = """
import os
from sparkcache.node.lifetime import executor_pid
print(executor_pid(), os.getppid())
"""


def test_the_executor_is_the_jvm_above() -> None:
    jvm, found, _ = run_below("java", CODE)
    assert found == jvm


def test_without_a_jvm_the_executor_is_the_parent() -> None:
    _, found, parent = run_below("a) b (c", CODE)
    assert found == parent
    assert executor_pid() > 0


def ends(pid: int, directory: Path, act: object) -> bool:
    """Return whether a watch ends after an act, within some seconds."""
    assert callable(act)

    async def scenario() -> bool:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        watch(loop, pid=pid, directory=directory, on_end=end.set)
        act()
        try:
            async with asyncio.timeout(3):
                await end.wait()
        except TimeoutError:
            return False
        return True

    return asyncio.run(scenario())


def test_a_watch_ends_with_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "executor"
    directory.mkdir()
    assert ends(os.getpid(), directory, directory.rmdir)


def test_a_watch_ends_when_the_directory_is_another_one(tmp_path: Path) -> None:
    directory = tmp_path / "executor"
    directory.mkdir()

    def replace() -> None:
        directory.rename(tmp_path / "old")
        directory.mkdir()

    assert ends(os.getpid(), directory, replace)


def test_a_watch_ends_with_the_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert ends(process.pid, tmp_path, process.kill)
    assert ends(process.pid, tmp_path, lambda: None)
