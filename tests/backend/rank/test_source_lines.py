"""The user's line among those of Emu, torch, Python and what is installed."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from emu.backend.rank.source_lines import SourceLine, caller, error_line, in_brackets, is_users, starts_rank, traceback_of
from emu.errors import RunError, must_be

HERE = __file__


def called(source, folder, given=None, **more):
    """Run a text as a file of the user's, where these names are known."""
    file = folder / "program.py"
    file.write_text(source)
    given = {} if given is None else given
    given |= more
    exec(compile(source, str(file), "exec"), given)
    return file


@pytest.mark.parametrize(
    ("file", "own"),
    [
        (HERE, True),
        ("/home/a/train.py", True),
        ("/home/a/.venv/lib/python3.11/site-packages/lightning/fit.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        (json.__file__, False),
        (torch.__file__, False),
        (must_be.__code__.co_filename, False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_the_user_s_files_are_neither_python_s_nor_installed_nor_emu_s(file, own):
    assert is_users(file) is own


def test_the_caller_is_the_innermost_line_of_the_user_s(tmp_path):
    seen = []
    text = "def outer():\n    inner()\ndef inner():\n    seen.append(ask())\nouter()\n"
    file = called(text, tmp_path, seen=seen, ask=caller)
    assert seen == [SourceLine(str(file), 4)]


def test_the_caller_is_found_behind_torch_python_and_what_is_installed(tmp_path):
    """The line that starts the backward is the one that asks for what DDP sends in it."""
    (tmp_path / "site-packages").mkdir()
    seen, given = [], {"caller": caller}
    called("def hook(gradient):\n    seen.append(caller())", tmp_path / "site-packages", given=given, seen=seen)
    tensor = torch.ones(2, requires_grad=True)
    tensor.register_hook(given["hook"])
    text = "import contextlib\nwith contextlib.suppress(ValueError):\n    x = (tensor * 2).sum()\n    x.backward()\n"
    assert seen == [SourceLine(str(called(text, tmp_path, {"tensor": tensor})), 4)]


def test_where_no_line_is_the_user_s_there_is_none():
    with pytest.raises(RunError) as error:
        raise RunError("x")
    assert error_line(error.value) is not None
    assert error_line(error.value.with_traceback(None)) is None
    assert in_brackets(None) == ""


def test_a_line_is_told_from_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(SourceLine(str(tmp_path / "a" / "b.py"), 3)) == f"a{os.sep}b.py:3"
    assert str(SourceLine("/elsewhere/b.py", 3)) == "/elsewhere/b.py:3"
    assert in_brackets(SourceLine(str(tmp_path / "b.py"), 3)) == " (b.py:3)"


def test_a_traceback_leaves_out_torch_and_emu(tmp_path):
    text = "def forward(x):\n    return layer(x)\n\ntry:\n    forward(x)\nexcept Exception as error:\n    seen.append(error)\n"
    seen = []
    file = called(text, tmp_path, layer=nn.Sequential(nn.Linear(3, 3)), x=torch.ones(2, 4), seen=seen)
    lines = traceback_of(seen[0])
    assert lines[0] == "Traceback (most recent call last):"
    assert [line for line in lines if line.startswith("  File")] == [
        f'  File "{file}", line 5, in <module>',
        f'  File "{file}", line 2, in forward',
    ]
    assert lines[-1].startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert error_line(seen[0]) == SourceLine(str(file), 2)


def test_a_traceback_keeps_where_an_error_came_from(tmp_path):
    text = (
        "try:\n    try:\n        layer(x)\n    except RuntimeError as error:\n        raise KeyError('why') from error\n"
        "except KeyError as error:\n    seen.append(error)\n"
    )
    seen = []
    called(text, tmp_path, layer=nn.Linear(3, 3), x=torch.ones(2, 4), seen=seen)
    lines = traceback_of(seen[0])
    assert [line.partition(", ")[2] for line in lines if line.startswith("  File")] == [
        "line 3, in <module>",
        "line 5, in <module>",
    ]
    assert "The above exception was the direct cause of the following exception:" in lines
    assert str(Path(torch.__file__).parent) not in "\n".join(lines)


def test_an_error_of_emu_s_is_not_told_at_the_end_of_its_traceback(tmp_path):
    text = "try:\n    fail()\nexcept Exception as error:\n    seen.append(error)\n"
    seen = []

    def fail():
        raise must_be("a", "b", "c", 1)

    called(text, tmp_path, fail=fail, seen=seen)
    lines = traceback_of(seen[0])
    assert "must be" not in lines[-1]
    assert [line.partition(", ")[2] for line in lines if line.startswith("  File")] == ["line 2, in <module>", lines_of(fail)]
    assert traceback_of(RunError("never raised")) == []


def lines_of(function):
    return f"line {function.__code__.co_firstlineno + 1}, in {function.__name__}"


@starts_rank
def start(program):
    return program()


def test_who_starts_a_rank_is_not_of_its_program(tmp_path):
    """A launcher's own file may look like one of the user's."""
    seen = []
    called("seen += [ask(), start(ask)]", tmp_path, seen=seen, ask=caller, start=start)
    assert seen == [SourceLine(str(tmp_path / "program.py"), 1), None]


def test_a_traceback_begins_where_its_rank_does(tmp_path):
    with pytest.raises(ZeroDivisionError) as raised:
        called("def program():\n    1 / 0\nstart(program)", tmp_path, start=start)
    told = "\n".join(traceback_of(raised.value))
    assert 'program.py", line 2' in told
    assert 'program.py", line 3' not in told
