from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.progress import Step, reporting_to, steps
from sparkcache.source.driver import planner_progress
from sparkcache.source.driver.planner_progress import Listener, reporting_through

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE_S = 5.0


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s

    def ticks(self, count: int, every_s: float) -> Iterator[int]:
        """Yield items that take some time each."""
        for item in range(count):
            self.now_s += every_s
            yield item


@dataclass
class Screen:
    """A display that records the steps shown, and when it is opened and closed."""

    shown: list[Step] = field(default_factory=list)
    opened: int = 0
    is_closed: threading.Event = field(default_factory=threading.Event)
    fails_at: str = ""

    def __call__(self) -> Screen:
        self.opened += 1
        self._do("open")
        return self

    def show(self, step: Step) -> None:
        self._do("show")
        self.shown.append(step)

    def close(self) -> None:
        self.is_closed.set()
        self._do("close")

    def _do(self, what: str) -> None:
        if what == self.fails_at:
            raise OSError("no such screen")


def test_short_work_opens_nothing() -> None:
    clock, screen = Clock(), Screen()
    with reporting_to(screen, clock):
        items = list(steps(clock.ticks(10, 0.04), "Listing", "objects"))
    assert items == list(range(10))
    assert screen.opened == 0


def test_long_work_is_reported_five_times_a_second() -> None:
    clock, screen = Clock(), Screen()
    with reporting_to(screen, clock):
        items = steps(clock.ticks(1000, 0.01), "Listing", "objects", 1000)
        assert sum(1 for _ in items) == 1000
        assert screen.opened == 1
        assert not screen.is_closed.is_set()
    assert screen.is_closed.is_set()
    assert screen.shown[0] == Step("Listing", "objects", 50, 1000)
    done = [step.done for step in screen.shown]
    assert done == sorted(done)
    assert 45 <= len(done) <= 48  # in the 9.5 seconds after the first half


def test_nothing_is_reported_outside_and_in_other_threads() -> None:
    clock, screen = Clock(), Screen()

    def work() -> list[int]:
        return list(steps(clock.ticks(99, 1.0), "Listing", "objects"))

    with reporting_to(screen, clock):
        other = threading.Thread(target=work)
        other.start()
        other.join()
    work()
    assert screen.opened == 0


@pytest.mark.parametrize("fails_at", ["open", "show", "close"])
def test_a_failing_screen_harms_no_work_and_is_logged_once(
    fails_at: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sparkcache")
    clock, screen = Clock(), Screen(fails_at=fails_at)
    with reporting_to(screen, clock):
        assert len(list(steps(clock.ticks(99, 1.0), "Listing", "objects"))) == 99
    assert screen.opened == 1
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert "no such screen" in caplog.text


def test_an_error_of_the_work_is_raised_and_the_screen_closed() -> None:
    clock, screen = Clock(), Screen()

    def work() -> Iterator[int]:
        yield from clock.ticks(2, 1.0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), reporting_to(screen, clock):
        list(steps(work(), "Listing", "objects"))
    assert screen.is_closed.is_set()


@contextmanager
def listening(directory: str, screen: Screen) -> Iterator[None]:
    listener = Listener(directory, screen)
    thread = threading.Thread(target=listener.serve)
    thread.start()
    try:
        yield
    finally:
        listener.close()
        thread.join()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report every step."""
    monkeypatch.setattr("sparkcache.progress.FIRST_S", 0.0)
    monkeypatch.setattr("sparkcache.progress.PAUSE_S", 0.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("folder", ["short", "l" * 150], ids=["short", "long path"])
def test_a_planner_reports_to_another_process(tmp_path: Path, folder: str) -> None:
    directory, screen = tmp_path / folder, Screen()
    directory.mkdir()
    with listening(str(directory), screen):
        with reporting_through(str(directory)):
            list(steps(range(3), "Listing s3://b", "objects"))
            list(steps(range(2), "Reading", "indexes", 2))
        assert screen.is_closed.wait(GRACE_S)
    assert screen.shown == [
        *(Step("Listing s3://b", "objects", done, None) for done in (1, 2, 3)),
        *(Step("Reading", "indexes", done, 2) for done in (1, 2)),
    ]


@pytest.mark.usefixtures("quick")
def test_a_planner_is_shown_after_one_that_sent_nonsense(tmp_path: Path) -> None:
    class Nonsense(Step):
        done: Any

    good, bad = Step("Listing", "objects", 1, None), Nonsense("x", "y", "z", None)  # type: ignore[arg-type]
    screen = Screen()
    with listening(str(tmp_path), screen):
        for step in (bad, good):
            screen.is_closed.clear()
            sender = planner_progress._Sender(str(tmp_path))
            sender.show(step)
            sender.close()
            assert screen.is_closed.wait(GRACE_S)
    assert screen.shown == [good]


@pytest.mark.usefixtures("quick")
def test_a_user_who_has_gone_or_does_not_look_harms_no_planner(tmp_path: Path) -> None:
    with reporting_through(str(tmp_path)), reporting_through(str(tmp_path / "nowhere")):
        assert list(steps(range(3), "Listing", "objects")) == [0, 1, 2]
    unheard = Listener(str(tmp_path), Screen())  # no serve(): its buffer fills
    try:
        with reporting_through(str(tmp_path)):
            assert sum(1 for _ in steps(range(5000), "Listing", "objects")) == 5000
    finally:
        unheard.close()


def test_without_a_terminal_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = threading.active_count()
    assert planner_progress.listen_once() is None
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == []


def test_the_directory_ends_with_the_interpreter() -> None:
    master, terminal = os.openpty()
    try:
        program = (
            "from sparkcache.source.driver.planner_progress import listen_once\n"
            "first = listen_once()\n"
            "assert first == listen_once()\n"
            "import os; print(oct(os.stat(first).st_mode & 0o777), first)\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=terminal,
            text=True,
            check=True,
        )
    finally:
        os.close(terminal)
        os.close(master)
    mode, directory = ended.stdout.split()
    assert mode == "0o700"
    assert not Path(directory).exists()
