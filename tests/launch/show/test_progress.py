"""Progress: on a terminal, after two seconds; a line into a pipe; and never anything on stdout."""

import io
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from emu.study.choice.race_progress import RACE
from emu.study.measure.bench import measure
from launch.front import measurements
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
    progress.show_on_stderr()
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
    progress.show_on_stderr()
    with progress.progress_bar("training") as advance:
        time.sleep(0.3)
        advance()
    assert ("training" in terminal.getvalue()) is shown
    assert capsys.readouterr().out == ""


def show_on_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show progress from the beginning on a stderr that is no terminal, after each 0.2 s of silence."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "SILENCE_S", 0.2)
    monkeypatch.setattr(logging.getLogger("emu"), "handlers", [])
    progress.show_on_stderr()


def test_a_pipe_is_told_each_row_once_it_is_known_and_never_left_alone_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    show_on_a_pipe(monkeypatch)
    with caplog.at_level(logging.INFO, "emu"):
        for row in progress.with_progress(range(2), "timing", 2, "row {}".format):
            time.sleep(0.5 * row)
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "row" in line] == ["timing: 1 of 2: row 0", "timing: 2 of 2: row 1"]
    between = lines[lines.index("timing: 1 of 2: row 0") + 1 : -1]
    assert len(between) >= 2
    assert all(re.fullmatch(r"timing: 1 of 2: \d+ s so far", line) for line in between)


def test_an_operation_after_another_is_not_silent_for_longer_than_one_operation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    show_on_a_pipe(monkeypatch)
    with caplog.at_level(logging.INFO, "emu"):
        with progress.progress_bar("listing"):
            time.sleep(0.1)
        monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
        with progress.progress_bar("bounding"):
            time.sleep(0.5)
    assert {record.getMessage() for record in caplog.records} >= {"listing", "bounding"}


def test_where_a_state_is_given_it_says_how_far_the_work_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    monkeypatch.setattr(progress, "SILENCE_S", 0.2)
    monkeypatch.setattr(logging.getLogger("emu"), "handlers", [])
    progress.show_on_stderr()
    with caplog.at_level(logging.INFO, "emu"), progress.progress_bar("searching", None, lambda: "7 plans left") as advance:
        advance("too early")
        time.sleep(0.5)
        advance("a better plan")
        time.sleep(0.5)
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("searching: a better plan") == 1
    assert {*lines} == {"searching: a better plan", "searching: 7 plans left"}
    assert lines.index("searching: a better plan") not in (0, len(lines) - 1)


def test_a_terminal_has_the_state_beside_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.1)
    monkeypatch.setenv("TERM", "xterm")
    progress.show_on_stderr()
    with progress.progress_bar("searching", None, lambda: "7 plans left") as advance:
        advance("too early")
        time.sleep(0.6)
        advance("a better plan")
    assert "7 plans left" in terminal.getvalue()
    assert "a better plan" in terminal.getvalue()
    assert "too early" not in terminal.getvalue()


def test_a_function_of_the_user_hears_of_progress_and_stderr_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, int, int | None]] = []
    with progress.progress(lambda *said: told.append(said)):
        assert list(progress.with_progress("ab", "timing", 2)) == ["a", "b"]
    assert told == [("timing", 0, 2), ("timing", 1, 2), ("timing", 2, 2)]
    assert capsys.readouterr() == ("", "")


def test_where_nothing_can_be_counted_a_pipe_is_told_how_long_it_has_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    show_on_a_pipe(monkeypatch)
    with caplog.at_level(logging.INFO, "emu"), progress.progress_bar("timing the step"):
        time.sleep(0.7)
    first, *later = [record.getMessage() for record in caplog.records]
    assert first == "timing the step"
    assert later
    assert all(re.fullmatch(r"timing the step: \d+ s so far", line) for line in later)


def test_rows_of_several_topologies_are_told_as_they_are_known_and_which_one_is_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slowly(*asked: Any) -> Iterator[Any]:
        time.sleep(0.5)
        yield from measure(*asked)

    monkeypatch.setattr(measurements, "measure", slowly)
    show_on_a_pipe(monkeypatch)
    fabrics = [f"ring:n={n},bandwidth=1GB/s,latency=0s" for n in (4, 8)]
    with caplog.at_level(logging.INFO, "emu"):
        measurements.bench("all_reduce", topology=fabrics, algorithm="ring", size="1MiB", timing_only=True)
    told = [record.getMessage().removeprefix("all_reduce on 2 topologies: ") for record in caplog.records]
    first, second = (
        told.index(f"{n} of 2: ring, 1 MiB on {name}: {ms} ms")
        for n, name, ms in zip((1, 2), fabrics, (1.573, 1.835), strict=True)
    )
    assert f"on {fabrics[0]} for 0 s" in told[:first]
    assert f"1 of 2: on {fabrics[1]} for 0 s" in told[first:second]


def test_a_function_of_the_user_hears_what_a_search_knows_while_nothing_ends(monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.05)
    heard, twice = [], threading.Event()

    def report(label, done, total):
        heard.append((label, done, total))
        if len(heard) == 3:
            twice.set()

    with progress.progress(report), progress.progress_bar("searching", None, lambda: "the best so far") as advance:
        assert twice.wait(5)
        advance()
    assert heard[0] == ("searching", 0, None)
    assert heard[1] == heard[2] == ("searching: the best so far", 0, None)
    assert heard[-1] == ("searching: the best so far", 1, None)


def test_a_function_of_the_user_hears_the_plain_label_where_the_number_of_parts_is_known():
    heard = []
    with progress.progress(lambda *each: heard.append(each)), progress.progress_bar("timing", 1, lambda: "for 3 s") as advance:
        advance()
    assert heard == [("timing", 0, 1), ("timing", 1, 1)]


def test_lines_and_bars_name_the_algorithm_that_is_timed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    show_on_a_pipe(monkeypatch)
    with caplog.at_level(logging.INFO, "emu"), progress.progress_bar("choosing"), RACE.race():
        RACE.note("all_reduce", "ring", 8, 3)
        time.sleep(0.6)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.endswith("; timing all_reduce ring on 8 ranks, 3 algorithms left") for line in lines)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with progress.progress_bar("choosing"), RACE.race():
        RACE.note("all_reduce", "ring", 8, 3)
        time.sleep(0.4)
    assert "timing all_reduce ring on 8 ranks, 3 algorithms left" in terminal.getvalue()
