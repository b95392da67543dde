"""Progress: on a terminal, after two seconds; nothing into a pipe, and never anything on stdout."""

import io
import sys
import time

import pytest

from launch.show import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_written_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    assert list(progress.tracked(range(3), "proving", 3)) == [0, 1, 2]
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(("patience_s", "shown"), [(0.0, True), (60.0, False)])
def test_a_bar_appears_once_patience_has_run_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], patience_s: float, shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar("training") as advance:
        time.sleep(0.3)
        advance()
    assert ("training" in terminal.getvalue()) is shown
    assert capsys.readouterr().out == ""
