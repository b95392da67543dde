"""Progress: on a terminal, after two seconds; a line into a pipe; and never anything on stdout."""

import io
import logging
import sys
import time

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
