"""A user's own file: what it files is proved, timed and listed with the rest; what is wrong with it is one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from emu.collective.algorithm import ALGORITHMS

MINE = '''"""A collective of my own. Source: me, 2026."""
from fractions import Fraction
import numpy as np
from emu import Claim, Schedule, Sends
from emu.collective.algorithm import collective

CLAIM = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n))

@collective("all_gather", "leftward", claim=CLAIM)
def all_gather(n):
    """In round t, rank r passes slot r+t to its left."""
    r = np.arange(n)
    return Schedule.build(n, n, (Sends(r, (r - 1) % n, (r + t) % n) for t in range(n - 1)))
'''


@pytest.fixture
def mine(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    yield str(path)
    ALGORITHMS._filed.pop("all_gather/leftward", None)


def test_a_collective_of_ones_own_is_proved_and_held_to_its_claim(emu, mine: str) -> None:
    done = emu("verify", "all_gather", "--algorithm", "leftward", "--import", mine, "--json")
    assert done.code == 0, done.err
    assert {row["claim"] for row in done.json} == {"equal"}


def test_a_collective_of_ones_own_is_benched(emu, mine: str) -> None:
    args = ("--topology", "ub-mesh:board", "--size", "8KiB", "--import", mine, "--json")
    (row,) = emu("bench", "all_gather", "--algorithm", "leftward", *args).json
    assert row["wrong"] == 0


SHORT = """import numpy as np
from emu import Schedule, Sends, collective
@collective("all_gather", "one-by-one")
def build(n):
    r = np.arange(n)
    return Schedule.build(n, n, [Sends(r, (r + t) % n, r) for t in range(1, n)])
"""


@pytest.fixture
def short(tmp_path: Path):
    path = tmp_path / "short.py"
    path.write_text(SHORT)
    yield str(path)
    ALGORITHMS._filed.pop("all_gather/one-by-one", None)


def test_six_lines_are_a_collective_and_nothing_else_is_verified(emu, short: str) -> None:
    done = emu("verify", "--import", short, "--ranks", "5", "--json")
    assert done.code == 0, done.err
    assert [(row["algorithm"], row["proof"], row["claim"]) for row in done.json] == [("one-by-one", "ok", "none")]


def test_of_an_operation_only_what_the_file_holds_is_verified(emu, short: str) -> None:
    done = emu("verify", "all_gather", "--import", short, "--ranks", "5", "--json")
    assert [row["algorithm"] for row in done.json] == ["one-by-one"]


def test_a_file_that_holds_nothing_of_the_operation_is_one_line(emu, short: str) -> None:
    done = emu("verify", "all_reduce", "--import", short)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "emu: verify: the files of --import hold no collective for all_reduce; "
        "file one with @collective, or leave --import out\n"
    )


@pytest.mark.parametrize("line", ["import emu", "from emu import collective", "import emu.collective.algorithm\nimport emu"])
def test_the_decorator_is_had_whatever_was_imported_before(tmp_path: Path, line: str) -> None:
    how = "emu.collective" if line.endswith("import emu") else "collective"
    program = f"""{line}
{SHORT.replace(", collective", "").replace("@collective", "@" + how)}
from emu.collective.algorithm import algorithm
print(algorithm("all_gather", "one-by-one").schedule(3).n_rows)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("6\n", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import emu\nring = emu.Schedule.build(2, 2, [])\n",
            'emu: --import: mine.py registers nothing; write @collective("all_reduce", "a-name") above the function',
        ),
        ("from emu.collective.algorithm import ALGORITHMS\nlist(ALGORITHMS)\n", "mine.py registers nothing"),
        ("1 / 0\n", "mine.py, line 1: ZeroDivisionError: division by zero"),
        ("def (\n", "mine.py: SyntaxError"),
        (
            MINE.replace('"all_gather", "left', '"all_gathr", "left'),
            "no operation is called 'all_gathr'; did you mean all_gather",
        ),
        (
            MINE.replace("leftward", "ring"),
            "'all_gather/ring' is defined twice: ring.py, line ",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(emu, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    done = emu("verify", "--import", str(path))
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert message in done.err


def test_a_file_that_is_not_there_is_one_line(emu) -> None:
    done = emu("list", "collectives", "--import", "no/such.py")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "'no/such.py' is no Python file that can be read" in done.err
