"""Compiled functions: Python while that is quicker, then machine code, compiled once for all processes and never stale."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pytest

from emu.arrays import F64, I64, Bool, column
from emu.compiled import function
from emu.compiled.function import ENOUGH, I64_OUT, CompiledFunction, InterpreterBudget, compiled, compiled_making_arrays

STEP = 3
HEADER = "import numpy as np\nfrom emu.arrays import F64, I64\nfrom emu.compiled.function import compiled\n"


@compiled
def _step(x: int) -> int:
    return x + STEP


@compiled
def _add_step(to: I64_OUT, values: I64) -> int:
    for i in range(len(values)):
        to[i] += _step(values[i])
    return len(values)


@pytest.fixture(params=[0, 10**9], ids=["machine code", "Python"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "ENOUGH", request.param)
    for compiled_here in (_step, _add_step, _times, _both, _parts_of):
        monkeypatch.setattr(compiled_here, "_entries", {})


@pytest.mark.usefixtures("_way")
def test_a_function_does_what_its_text_says() -> None:
    to = np.zeros(3, np.int64)
    assert _add_step(to, column([1, 2, 3], np.int64)) == 3
    assert to.tolist() == [4, 5, 6]
    assert _step(4) == 7


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("values", [np.zeros(4, np.int32), np.zeros(8, np.int64)[::2], np.zeros((2, 2), np.int64), [1, 2]])
def test_only_what_the_annotations_say_is_taken(values: Any) -> None:
    with pytest.raises(TypeError):
        _add_step(np.zeros(4, np.int64), values)


@pytest.mark.usefixtures("_way")
def test_what_is_not_to_be_written_is_not_taken_for_what_is() -> None:
    with pytest.raises(TypeError):
        _add_step(column([0], np.int64), column([1], np.int64))


def made(source: str, **names: object) -> Any:
    """The function `f` of a source, in a module that has `names`."""
    module: dict[str, Any] = {"__name__": "made", **names}
    exec(HEADER + source, module)
    return module["f"]


LOOP = "@compiled\ndef f(x: I64) -> int:\n    {doc}\n    return x[0] + {body}\n"
HELPER = "@compiled\ndef helper(x: int) -> int:\n    return x + {more}\n"


def test_the_content_is_all_that_decides_what_a_function_does() -> None:
    helpers = [made(HELPER.replace("helper", "f").format(more=more)) for more in (1, 2)]
    contents = [
        made(LOOP.format(doc="'''One.'''", body="1")).content,
        made(LOOP.format(doc="'''One.'''", body="2")).content,
        made(LOOP.format(doc="'''One.'''", body="1"), __name__="moved").content,
        made(LOOP.format(doc="'''One.'''", body="1").replace("x: I64", "x: F64")).content,
        made(
            LOOP.format(doc="'''One.'''", body="1").replace("@compiled\n", "@lambda f: Compiled(f, True)\n"),
            Compiled=CompiledFunction,
        ).content,
        *(made(LOOP.format(doc="'''One.'''", body="MORE"), MORE=more).content for more in (1, 2, 1.0, np.int64(1))),
        *(made(LOOP.format(doc="'''One.'''", body="g(x[0])"), g=helper).content for helper in helpers),
        *(made(LOOP.format(doc="'''One.'''", body=f"np.{name}(x[0])")).content for name in ("abs", "sign")),
    ]
    assert len(set(contents)) == len(contents)


def test_words_and_places_are_not_part_of_the_content() -> None:
    one = made(LOOP.format(doc="'''One.'''", body="MORE"), MORE=1)
    other = made("\n\n" + LOOP.format(doc="'''Another.'''", body="MORE  # more"), MORE=1, LESS=2)
    assert one.content == other.content


def test_what_could_change_unseen_is_refused() -> None:
    f = made(LOOP.format(doc="'''One.'''", body="g(x[0])"), g=lambda x: x)
    with pytest.raises(TypeError, match="f: g must be a number, compiled, or numpy's"):
        _ = f.content


def test_what_stands_around_a_function_or_in_it_could_change_unseen() -> None:
    around = made("def around(more):\n    def f(x: I64) -> int:\n        return x[0] + more\n    return f\nf = around\n")
    within = made("def f(x: I64) -> int:\n    g = lambda y: y + MORE\n    return g(x[0])\n", MORE=1)
    for each in (around(1), within):
        with pytest.raises(TypeError, match="f must be at the top of its module, without functions in it"):
            _ = compiled(each).content


@compiled
def _times(values: I64 | F64, factor: int | float) -> Any:
    return values[0] * factor


@compiled
def _both(whole: I64, broken: F64) -> float:
    return float(_times(whole, 3) + _times(broken, 0.5))


@pytest.mark.usefixtures("_way")
def test_of_alternatives_a_call_takes_the_first_of_each_or_the_second_of_each() -> None:
    assert _times(np.array([5]), 3) == 15
    assert _times(np.array([5.0]), 0.5) == 2.5
    assert _both(np.array([5]), np.array([5.0])) == 17.5
    with pytest.raises(TypeError, match="_times: values must be"):
        _times(np.array([5], np.int32), 1)


class _Inner(NamedTuple):
    a: I64
    b: I64
    c: I64
    d: I64
    flags: Bool


class _Many(NamedTuple):
    inner: _Inner
    factor: int
    share: float
    to: I64_OUT
    values: F64


@compiled_making_arrays
def _parts_of(m: _Many) -> F64:
    made = np.zeros(len(m.values))
    for i in range(len(made)):
        m.to[i] += m.inner.a[i] * m.factor + m.inner.d[i]
        made[i] = m.values[i] * m.share + m.inner.flags[i]
    return made


@pytest.mark.usefixtures("_way")
def test_many_parts_arrive_as_they_are_and_nobody_keeps_them() -> None:
    arrays = [np.arange(3) + 10 * i for i in range(4)]
    many = _Many(_Inner(*arrays, np.array([True, False, True])), 100, 0.5, np.zeros(3, np.int64), np.ones(3))
    held = [arrays[0], many.to, many.values]
    before = [*map(sys.getrefcount, held)]
    for _ in range(5):
        assert _parts_of(many).tolist() == [1.5, 0.5, 1.5]
    assert many.to.tolist() == [5 * 30, 5 * 131, 5 * 232]
    assert [*map(sys.getrefcount, held)] == before


@pytest.mark.usefixtures("_way")
def test_a_part_of_another_kind_is_refused() -> None:
    inner = _Inner(*(np.zeros(1, np.int64) for _ in range(4)), np.zeros(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="_parts_of: m must be"):
        _parts_of(_Many(inner, 1, 1.0, np.zeros(1, np.int64), np.ones(1)))


def test_an_annotation_that_is_no_number_is_refused() -> None:
    def of_text(x: str) -> int:
        return len(x)

    assert isinstance(of_text, FunctionType)
    with pytest.raises(TypeError, match="numbers, arrays and tuples of them, not <class 'str'>"):
        _ = compiled_making_arrays(of_text).signatures


def test_timing_imports_no_numba_until_something_is_timed() -> None:
    code = "import sys, emu.fabric.lower, emu.fabric.run\nprint({'numba', 'llvmlite', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"


def test_few_numbers_need_no_compiler_and_many_do() -> None:
    code = (
        "import sys, numpy as np\nfrom emu.arrays import column\nfrom emu.fabric.lowering.row_order import stable_order\n"
        "for keys in (np.zeros(100), np.zeros(10**6)):\n"
        "    stable_order(column(keys, np.int32), 1, column(keys, np.int32), 2)\n    print('numba' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "False\nTrue\n"


def test_one_number_after_another_many_are_many_too() -> None:
    taken = InterpreterBudget()
    assert sum(taken.take(ENOUGH // 10) for _ in range(100)) == 10


class Package:
    """Two files of a package: a constant and a helper in one, a function that uses both in the other."""

    def __init__(self, home: Path) -> None:
        self.home, self.cache = home, home / "cache"
        (home / "mine").mkdir(exist_ok=True)
        (home / "mine" / "__init__.py").touch()
        self.write("parts.py", HEADER + "SCALE = 2\n" + HELPER.format(more=1))
        self.write(
            "whole.py", HEADER + "from mine.parts import SCALE, helper\n" + LOOP.format(doc="", body="SCALE * helper(10)")
        )

    def write(self, name: str, source: str) -> None:
        (self.home / "mine" / name).write_text(source)

    def start(self, cache: str = "") -> subprocess.Popen[str]:
        code = (
            "import logging, sys\nlogging.basicConfig(level=logging.INFO, format='%(message)s')\nimport numpy as np\n"
            "from emu.compiled import function\nfrom mine.whole import f\nfunction.ENOUGH = 0\n"
            "print(f(np.array([100])), f(np.array([200])), 'scipy.linalg' in sys.modules)"
        )
        environ = {**os.environ, "XDG_CACHE_HOME": cache or str(self.cache), "PYTHONDONTWRITEBYTECODE": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", code], cwd=self.home, env=environ, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, cache: str = "") -> tuple[str, str]:
        out, err = self.start(cache).communicate(timeout=120)
        return out, err

    def kept(self) -> list[str]:
        return sorted(path.name.split("-")[0] for path in (self.cache / "emu" / "compiled").iterdir())


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that has been run once."""
    home = tmp_path_factory.mktemp("once")
    assert Package(home).run()[0].startswith("122 222")
    return home


@pytest.fixture
def compiled_package(once: Path, tmp_path: Path) -> Package:
    """A copy of it, with what was compiled."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return Package(tmp_path)


def test_what_one_process_compiled_another_loads(package: Package) -> None:
    first, said = package.run()
    assert first.startswith("122 222")
    assert said.count("compiling") == 1
    assert package.run() == ("122 222 False\n", "")  # without what numba needs to compile, which imports scipy.linalg
    assert package.kept() == ["mine.whole.f"]  # one that is a part of others is not kept by itself


@pytest.mark.parametrize(
    ("name", "old", "new", "answer"),
    [
        ("parts.py", "x + 1", "x + 2", "124"),
        pytest.param("parts.py", "SCALE = 2", "SCALE = 3", "133", marks=pytest.mark.slow),
        pytest.param("whole.py", "x[0] +", "2 * x[0] +", "222", marks=pytest.mark.slow),
    ],
)
def test_a_change_in_any_file_is_compiled(compiled_package: Package, name: str, old: str, new: str, answer: str) -> None:
    package = compiled_package
    package.write(name, (package.home / "mine" / name).read_text().replace(old, new))
    out, said = package.run()
    assert out.split()[0] == answer
    assert "compiling" in said
    assert package.kept() == ["mine.whole.f"] * 2


def test_nothing_is_written_beside_the_sources(once: Path) -> None:
    assert sorted(path.name for path in (once / "mine").rglob("*")) == ["__init__.py", "parts.py", "whole.py"]


def test_two_processes_at_once_on_an_empty_cache_both_answer(package: Package) -> None:
    both = [package.start() for _ in range(2)]
    assert [process.communicate(timeout=120)[0].split()[:2] for process in both] == [["122", "222"]] * 2
    assert package.kept() == ["mine.whole.f"]


def test_a_cache_that_cannot_be_written_is_said_once_and_does_no_harm(package: Package) -> None:
    (package.home / "file").touch()
    out, said = package.run(str(package.home / "file"))
    assert out.startswith("122 222")
    assert said.count("compiled code cannot be kept") == 1
    assert "set XDG_CACHE_HOME to a folder that can be written" in said


EVIL = """
import pickle
from pathlib import Path
from emu.store import _check
class Evil:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('executed').touch()",)
[path] = Path("cache/emu/compiled").iterdir()
data = pickle.dumps((Evil(),))
path.write_bytes(_check(data) + data)
"""


def test_what_others_can_have_written_is_not_loaded(compiled_package: Package) -> None:
    """Machine code is kept in a pickle, which could do anything; one that the user has written is loaded, whatever it does."""
    package, executed = compiled_package, compiled_package.home / "executed"
    subprocess.run([sys.executable, "-c", EVIL], cwd=package.home, check=True)
    for folder in (package.cache, package.cache / "emu" / "compiled"):
        folder.chmod(0o707)
        out, said = package.run()
        assert out.startswith("122 222")
        assert said.count(f"compiled code cannot be kept: others may write {folder}: chmod go-w it; every command") == 1
        assert not executed.exists()
        folder.chmod(0o700)
    package.run()
    assert executed.exists()


def test_a_damaged_file_is_compiled_anew_and_mended(compiled_package: Package) -> None:
    package = compiled_package
    (kept,) = (package.cache / "emu" / "compiled").iterdir()
    kept.write_bytes(kept.read_bytes()[:-100])
    assert package.run()[0].startswith("122 222")
    assert package.run() == ("122 222 False\n", "")


def test_a_print_of_the_programs_own_does_not_keep_the_compiler_out() -> None:
    code = """
import builtins, sys
from emu.compiled import function
def quiet():
    def print(*words): pass
    return print
builtins.print = own = quiet()
assert "numba" not in sys.modules and function._machine() and builtins.print is own
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
