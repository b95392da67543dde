"""Progress: on a terminal, after two seconds; a line into a pipe; and never anything on stdout."""

import io
import logging
import sys
import time
from itertools import pairwise

import pytest

from launch.show import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("patience_s", "lines"), [(0.0, ["proving"]), (60.0, [])])
def test_a_pipe_gets_one_line_once_patience_has_run_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, patience_s: float, lines: list[str]
) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    monkeypatch.setattr(logging.getLogger("emu"), "handlers", [])  # a command that ran in this process has left its own
    with caplog.at_level(logging.INFO, "emu"):
        for _ in progress.with_progress(range(3), "proving", 3):
            time.sleep(0.1)
    assert [record.getMessage() for record in caplog.records] == lines
    assert pipe.getvalue() == ""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """The lines that are logged into a pipe, each with its moment; patience and silences are short."""
    lines: list[tuple[float, str]] = []
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    monkeypatch.setattr(progress, "SILENCE_S", 0.2)
    monkeypatch.setattr(progress._log, "info", lambda line: lines.append((time.monotonic(), line)))
    return lines


def wait_for(said: list[tuple[float, str]], count: int) -> None:
    until = time.monotonic() + 20
    while len(said) < count and time.monotonic() < until:
        time.sleep(0.01)
    assert len(said) >= count


def test_a_pipe_that_was_silent_for_long_gets_a_line_that_says_how_far_the_work_is(said) -> None:
    with progress.progress_bar("proving", 3) as advance:
        advance()
        wait_for(said, 2)
        advance()
        wait_for(said, 3)
    assert [line for _, line in said[:3]] == ["proving", "proving: 1 of 3", "proving: 2 of 3"]
    assert all(later - before >= 0.2 for (before, _), (later, _) in pairwise(said))
    count = len(said)
    time.sleep(0.5)
    assert len(said) == count, "nothing is said once the work is done"


def test_what_is_told_breaks_the_silence_and_the_state_says_how_far_the_work_is(said) -> None:
    with progress.progress_bar("searching", None, lambda: "7 plans left") as shown:
        shown.tell("too early")
        wait_for(said, 2)
        shown.tell("a better plan")
        wait_for(said, 4)
    assert [line for _, line in said[:4]] == ["searching", "7 plans left", "a better plan", "7 plans left"]
    assert said[3][0] - said[2][0] >= 0.2


def test_work_of_which_nothing_is_known_is_named_once(said) -> None:
    with progress.late_notice("loading"):
        time.sleep(0.6)
    assert [line for _, line in said] == ["loading"]


@pytest.mark.parametrize(("patience_s", "shown"), [(0.0, True), (60.0, False)])
def test_a_bar_appears_once_patience_has_run_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], patience_s: float, shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress_bar("training") as advance:
        time.sleep(0.3)
        advance()
    assert ("training" in terminal.getvalue()) is shown
    assert capsys.readouterr().out == ""


def test_a_terminal_has_the_state_beside_the_bar_and_what_is_told_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, told = Terminal(), []
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.1)
    monkeypatch.setattr(progress._log, "info", told.append)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress_bar("searching", None, lambda: "7 plans left") as shown:
        shown.tell("too early")
        time.sleep(0.6)
        shown.tell("a better plan")
    assert "7 plans left" in terminal.getvalue()
    assert told == ["a better plan"]
