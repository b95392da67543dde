"""A user's own file: what it files is proved, timed and listed with the rest; what is wrong with it is one line."""

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0\n", "mine.py, line 1: ZeroDivisionError: division by zero"),
        ("def (\n", "mine.py: SyntaxError"),
        (
            MINE.replace('"all_gather", "left', '"all_gathr", "left'),
            "no operation is called 'all_gathr'; did you mean all_gather",
        ),
        (MINE.replace("leftward", "ring"), "'all_gather/ring' is filed twice"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(emu, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    list(ALGORITHMS)
    done = emu("verify", "--import", str(path))
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert message in done.err


def test_a_file_that_is_not_there_is_one_line(emu) -> None:
    done = emu("list", "collectives", "--import", "no/such.py")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "'no/such.py' is no Python file that can be read" in done.err
