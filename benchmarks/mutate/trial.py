"""The tests that should see a fault of a file, and a copy of the repository in which they are run.

The checkout itself is never changed. A fault's file is written into the copy and put back; no byte code of Python's and, where
numba compiles functions, no machine code from before the fault is there to be used in its place.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.mutate.faults import Fault
from benchmarks.mutate.warm_process import run_pytest

FIGURES = "tests/figures"
# Beside those of the same name, the tests that see what a folder does; each is run from the left until one fails.
ALSO = {
    "emu/trace": (
        FIGURES,
        "tests/trace",
        "tests/study/training",
        "tests/backend/rank/test_record.py",
        "tests/cluster",
        "tests/launch",
    ),
    "emu/model/memory": ("tests/model/generate",),  # which hold it to what real ranks hold
    "emu/model/parallel": ("tests/model/generate",),  # which run it, and hold what is generated to what ran
    "emu/model": (FIGURES, "tests/models", "tests/study/training", "tests/launch"),
    "emu/study": (FIGURES, "tests/launch"),
    "emu/cluster/pace": ("tests/launch/test_pacing.py", "tests/launch/test_run_fake.py"),
    "emu/fabric": ("tests/collectives", "tests/study/measure"),
    "launch/front": ("tests/launch",),
    "launch/show": (FIGURES, "tests/launch"),
    "launch/data": (FIGURES, "tests/launch"),
}
# The tests of commands are run file by file, then those of their texts and of the papers. Left out are pictures, Ray, and the
# files below, which start a process for each test: they take most of the time, and see little that the others do not.
COMMANDS = "tests/launch"
FOLDERS = ("show/text", "papers")
APART = ("test_loads.py", "test_clusters.py")
_TESTS_FAILED, _INTERRUPTED = 1, 2  # exit codes of pytest; it is interrupted by a file that cannot be imported
# Starting Ray takes longer than all the rest, and only launch/ray is about it.
OPTIONS = ("-x", "-q", "-m", "not slow and not gpu and not ray", "-p", "no:cacheprovider", "--hypothesis-seed=0")


def seeing(root: Path, path: Path, *, near: bool = False) -> list[str]:
    """Return files and folders of tests: of the same name, of the same folder or the nearest above it, and those of `ALSO`.

    With `near`, those of `ALSO` are left out.
    """
    parts = path.parts[1:] if path.parts[0] == "emu" else path.parts
    folder = Path("tests", *parts[:-1])
    nearest = next(each for each in (folder, *folder.parents) if (root / each).is_dir())
    own = nearest / f"test_{path.stem}.py"
    has_own = (root / own).exists()
    also = [tests for prefix, some in ALSO.items() if path.is_relative_to(prefix) and not near for tests in some]
    wide = [] if has_own and nearest == Path("tests") else [str(nearest)]
    found = [str(own)] * has_own + [each for tests in (*wide, *also) for each in _of_commands(root, tests, parts[1:])]
    return list(dict.fromkeys(found))


def _of_commands(root: Path, tests: str, parts: tuple[str, ...]) -> list[str]:
    """The folder of tests of commands as its files, without those of `APART`; any other as it is."""
    if tests != COMMANDS or parts[:1] == ("ray",):
        return [tests]
    files = sorted((root / tests).glob("test_*.py"))
    folders = [f"{COMMANDS}/{folder}" for folder in FOLDERS if (root / COMMANDS / folder).is_dir()]
    return [*(str(file.relative_to(root)) for file in files if file.name not in APART), *folders]


def compiled(root: Path, path: Path) -> bool:
    """Return whether files of its folder (`emu/fabric`) compile functions: what the file says may be in their machine code."""
    folder = root / Path(*path.parts[:2])
    files = folder.rglob("*.py") if folder.is_dir() else (root / path).parent.glob("*.py")
    return any(re.search(r"^(import|from) numba\b", file.read_text(), re.MULTILINE) for file in files)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run of tests."""

    failed: str  # the first test that failed, or why there is none; "" if none failed
    wall_s: float
    output: str = ""
    untried: str = ""  # why no test was tried; "" if at least one was


class Copy:
    """A copy of a repository as it stands, without what its `.gitignore` names."""

    def __init__(self, root: Path, to: Path) -> None:
        self._original = root
        self.root = to / "copy"
        self.caches = to / "caches"
        self._warm = self.caches / "warm"
        listed = root / ".gitignore"
        names = [line.strip("/") for line in listed.read_text().split()] if listed.exists() else []
        shutil.copytree(root, self.root, symlinks=True, ignore=shutil.ignore_patterns(".git", *names))
        self._warm.mkdir(parents=True)

    def run(self, tests: list[str], limit_s: float | None = None, *, afresh: bool = False) -> Outcome:
        """Tests in their order until one fails; `afresh` compiles all machine code again."""
        here = (test.replace(str(self._original), str(self.root)) for test in tests)  # the name of a test may hold a path
        words, printed = [*OPTIONS, *here], self.caches / "output"
        with TemporaryDirectory(dir=self.caches) as fresh:
            kept = fresh if afresh else str(self._warm)  # not the user's: a fault's machine code is of no use to anyone
            env = {"PYTHONPATH": str(self.root), "XDG_CACHE_HOME": kept, "NUMBA_CACHE_DIR": kept}
            begun = monotonic()
            code = run_pytest(words, self.root, env, limit_s, printed)
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # what failed with one fault is not tried for the next
        output = printed.read_text(errors="replace")
        return Outcome(*_verdict(code, output, monotonic() - begun))

    @contextmanager
    def faulty(self, fault: Fault) -> Iterator[None]:
        """The copy with a fault in it."""
        path = self.root / fault.path
        source = path.read_bytes()
        try:
            _write(path, fault.apply(source))
            yield
        finally:
            _write(path, source)


def _write(path: Path, source: bytes) -> None:
    path.write_bytes(source)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)  # it is told by seconds and size, which may be the same


def _verdict(code: int | None, output: str, wall_s: float) -> tuple[str, float, str, str]:
    """Return what an exit code and what was printed say, in the order of the fields of `Outcome`.

    A test that fails and a file of tests that cannot be imported see a fault. A run that ends in another way has tried none, as
    one whose tests have other names with the fault.
    """
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    if code == 0:
        return "", wall_s, output, ""
    if code is None:
        return "time limit", wall_s, output, ""
    if code in (_TESTS_FAILED, _INTERRUPTED) and found:
        return str(found[0]), wall_s, output, ""
    if loading := re.search(r"^ImportError while loading conftest '(\S+)'", output, re.MULTILINE):
        return loading[1], wall_s, output, ""
    return "", wall_s, output, f"pytest ended with {code}"
