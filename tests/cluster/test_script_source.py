"""Sources that `emu run` takes: a file, a module as `python -m` has it, or standard input."""

import io
import linecache
import subprocess
import sys
from pathlib import Path

import pytest

from emu.cluster.script_run import Script, run_loaded_script, run_script
from emu.cluster.script_source import read_source
from emu.errors import InputError, RunError

TELLS = """
import json, sys
from pathlib import Path
told = {
    "argv": sys.argv[1:], "first": Path(sys.argv[0]).name, "name": __name__, "package": __package__ or "",
    "spec": __spec__ and __spec__.name, "file": globals().get("__file__") and Path(__file__).name,
    "path": sys.path[0], "init": "mine" in sys.modules and sys.modules["mine"].__name__,
}
"""
IMPORTS = "from {} import WORD\n"
SAYS = "print(json.dumps(told), WORD)\n"
RANKS = "import torch.distributed as dist\ndist.init_process_group('nccl')\ndist.barrier()\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes packages into the folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "mine/inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "mine" / "word.py").write_text("WORD = 'beside'")
    (tmp_path / "mine" / "inner" / "__main__.py").write_text("")

    def write(name, text):
        (tmp_path / "mine" / name).write_text(text)

    return write


def run(words, *, module=False, argv=("--lr", "1")):
    script = Script.of(read_source(words, module=module), argv, (), None, None)
    return run_loaded_script(script, 2)


@pytest.mark.parametrize(
    ("name", "file"), [("mine.train", "train.py"), ("mine", "__main__.py"), ("mine.inner", "inner/__main__.py")]
)
def test_a_module_finds_what_python_gives_it(package, capfd, name, file):
    of = "..word" if file.startswith("inner") else ".word"
    package(file, TELLS + IMPORTS.format(of) + SAYS)
    subprocess.run([sys.executable, "-m", name, "--lr", "1"], check=True)
    expected = capfd.readouterr().out
    package(file, RANKS + TELLS + IMPORTS.format(of) + "if dist.get_rank() == 1: " + SAYS)
    _, code = run(name, module=True)
    assert code == 0
    assert capfd.readouterr().out == expected
    assert "mine" not in sys.modules


def test_a_module_is_called_by_its_name_and_every_rank_imports_its_own(package):
    package("train.py", "import torch, mine.word\nassert not hasattr(mine, 'seen')\nmine.seen = True\ntorch.ones(1)\n")
    assert dict(run("mine.train", module=True)[0].meta)["script"] == "mine.train"


def stdin(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


FROM_STDIN = """
import inspect, sys, torch, torch.distributed as dist
from beside import WORD
dist.init_process_group("gloo")
assert WORD == 1 and sys.argv == ["-", "a", "b"] and __name__ == "__main__" and "__file__" not in globals()
def one_more(x: torch.Tensor):
    return x + 1
assert torch.jit.script(one_more)(torch.ones(1)).item() == 2 and "x + 1" in inspect.getsource(one_more)
"""


def test_a_script_may_come_from_standard_input(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("WORD = 1")
    stdin(monkeypatch, FROM_STDIN)
    trace, code = run_script("-", ["a", "b"], 2)
    assert code == 0
    assert dict(trace.meta)["script"] == "standard input"
    assert "<stdin>" not in linecache.cache


def test_an_error_in_what_comes_from_standard_input_names_rank_and_line(monkeypatch):
    stdin(monkeypatch, "import torch\n\n1 / 0\n")
    with pytest.raises(RunError, match=r"^rank 0: ZeroDivisionError: division by zero \(<stdin>:3\)$") as error:
        run_script("-", [], 1)
    assert "    1 / 0" in error.value.lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nothing.there", "run: no module 'nothing.there' is installed or in folder"),
        ("mine.inner.nothing", "run: no module 'mine.inner.nothing' is installed or in folder"),
        ("mine.", "run: no module 'mine.' is installed or in folder"),
        ("math", "run: module 'math' has no Python source"),
        ("mine.broken", "run: mine.broken, line 1 is not Python: "),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(package, words, said):
    package("broken.py", "def")
    with pytest.raises(InputError) as error:
        read_source(words, module=True)
    assert str(error.value).startswith(said)


def test_nothing_of_a_package_is_imported_before_its_ranks_run(package):
    package("__init__.py", "raise ValueError('too early')")
    package("train.py", "")
    assert read_source("mine.train", module=True).file == Path("mine/train.py").resolve()
