"""The command as a whole: one line for each error, the right exit code, nothing loaded that is not needed."""

import gc
import os
import re
import subprocess
import sys
from unittest.mock import Mock

import click
import pytest

from emu.errors import InputError, RunError
from launch import main as launch_main


def test_help_loads_neither_torch_nor_ray_nor_numba() -> None:
    code = (
        "import sys\nfrom launch.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as leave:\n    assert leave.code == 0, leave.code\n"
        "heavy = {'torch', 'ray', 'numba', 'matplotlib', 'scipy'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "emu bench all_reduce" in done.stdout


def test_the_collector_passes_over_what_was_loaded_and_looks_at_what_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    launch_main._freeze.cache_clear()
    for _ in range(2):
        assert launch_main.emu.get_command(Mock(), "list") is not None
        assert gc.isenabled()
    assert frozen == [False]  # what comes after the first command is none of it


@pytest.mark.parametrize(("given", "spins"), [(None, False), ("ACTIVE", True)])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(given: str | None, spins: bool) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | {"OMP_DISPLAY_ENV": "VERBOSE"}
    code = "from launch.main import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n    import torch"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ if given is None else environ | {"OMP_WAIT_POLICY": given},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    counts = re.findall(r"GOMP_SPINCOUNT *= *'(\d+)'", done.stderr)  # told by what gives torch its threads, when it is loaded
    if not counts:
        pytest.skip("torch has its threads from another library than GNU's")
    assert [int(count) > 0 for count in counts] == [spins] * len(counts)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as leave:
        launch_main.main(list(args))
    code = leave.value.code
    assert isinstance(code, int)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["benhc"], "no command is called 'benhc'; did you mean bench?"),
        (["bench"], "Missing argument 'OPERATION'. `emu bench --help` has examples."),
        (["bench", "all_reduce"], "Missing option '--topology'. `emu bench --help` has examples."),
        (["bench", "all_reduce", "--toplogy", "x"], "No such option '--toplogy'. Did you mean '--topology'?"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    code, err = run(capsys, *args)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert message in err


def stopped(note: str) -> KeyboardInterrupt:
    """Return an interrupt that has a note to tell."""
    error = KeyboardInterrupt()
    error.add_note(note)
    return error


def aborted(cause: KeyboardInterrupt) -> click.Abort:
    """Return the error by which click tells of an interrupt."""
    error = click.Abort()
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("bench: size must be ..."), 2, "emu: bench: size must be ..."),
        (RunError("rank 3: all_reduce failed"), 1, "emu: rank 3: all_reduce failed"),
        (KeyboardInterrupt(), 130, "emu: interrupted"),
        (stopped("go on from here"), 130, "emu: interrupted: go on from here"),
        (aborted(stopped("go on from here")), 130, "emu: interrupted: go on from here"),
    ],
)
def test_an_error_has_its_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    monkeypatch.setattr(launch_main.emu, "main", Mock(side_effect=error))
    got, err = run(capsys, "list")
    assert got == code
    assert err.splitlines() == [message]


def test_anything_else_is_a_bug_with_its_traceback_and_exit_code_70(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_main.emu, "main", Mock(side_effect=ZeroDivisionError))
    code, err = run(capsys, "list")
    assert code == 70
    assert "ZeroDivisionError" in err
    assert err.splitlines()[-1] == "emu: this is a bug in Emu; please report it with the lines above"


@pytest.mark.parametrize("words", [(), ("list",), ("show",)])
def test_a_command_that_needs_more_words_prints_its_help_and_is_content(emu, words) -> None:
    done, asked = emu(*words), emu(*words, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out == asked.out
    assert len(done.out.splitlines()) > 10


def test_an_unknown_option_before_a_script_is_no_script(emu, tmp_path) -> None:
    script = tmp_path / "x.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    done = emu("run", "--ranks", "2", "--topology", "ub-mesh:board", "--elastic", str(script))
    assert (done.code, done.out) == (2, "")
    assert "No such option '--elastic'" in done.err
    own = emu("run", "--ranks", "1", "--topology", "ub-mesh:board", str(script), "--elastic", "3", "-x", "--", "-")
    assert "['--elastic', '3', '-x', '--', '-']" in own.out
