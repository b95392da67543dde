"""`emu verify` says what it proved, draws a failure, and proves MSCCL programs from the command line."""

import re
from pathlib import Path

import pytest

from emu.collective.algorithm import ALGORITHMS
from emu.collective.schedule import RowsError
from emu.study.prove import verify as verifying
from tests.collective.msccl_programs import WRITTEN

pytestmark = pytest.mark.usefixtures("as_before")

BROKEN = '''"""Rings of my own, one of them wrong."""
from fractions import Fraction
import numpy as np
from emu import Claim, Schedule, Sends
from emu.collective.algorithm import collective

CLAIM = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n))

@collective("all_gather", "own-short", claim=CLAIM)
def short(n):
    """The last round is missing."""
    r = np.arange(n)
    return Schedule.build(n, n, (Sends(r, (r + 1) % n, (r - t) % n) for t in range(n - 2)))

@collective("all_gather", "own-slow", claim=CLAIM)
def slow(n):
    """The first round comes twice."""
    r = np.arange(n)
    return Schedule.build(n, n, (Sends(r, (r + 1) % n, (r - max(t, 0)) % n) for t in range(-1, n - 1)))

@collective("scatter", "own-crash", claim=CLAIM)
def crash(n):
    """Fails."""
    return Schedule.build(n, n, [Sends(0, [][n], 0)])
'''


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    return str(path)


def test_a_line_an_algorithm_says_what_was_proved(emu) -> None:
    done = emu("verify", "broadcast", "--max-ranks", "31")
    head, *lines = done.out.splitlines()
    assert head.split() == ["operation", "algorithm", "ranks", "shapes", "roots", "proved", "claimed", "time", "wall", "(s)"]
    for line in lines:
        assert " ".join(line.split()[2:-1]).startswith("1..17, 31 18 first, middle, last exact sums, integers, same bits equal")


def test_a_row_a_shape_is_printed_as_json(emu) -> None:
    (row,) = emu("verify", "scatter", "--algorithm", "binomial", "--ranks", "5", "--json").json
    assert (row["proof"], row["proved"], row["roots"], row["rows"]) == ("ok", "exact", [0, 2, 4], 5)
    assert (row["uniform"], row["fault"]) == (True, None)


def test_only_what_a_file_has_in_it_is_tried_and_its_failures_are_drawn(emu, broken: str, tmp_path: Path) -> None:
    png = tmp_path / "round.png"
    done = emu("verify", "--import", broken, "--ranks", "4", "--png", str(png))
    assert done.code == 1
    table, *stories = done.out.rstrip().split("\n\n")
    assert [line.split()[1] for line in table.splitlines()[1:]] == ["own-short", "own-slow", "own-crash"]
    assert "FAILS on 4 ranks" in table.splitlines()[1]
    assert re.search("exact sums, integers, same bits  DIFFERS on 4 ranks  ", table.splitlines()[2])
    assert stories == [
        "all_gather own-short on 4 ranks: proof: at the end: rank 3, slot 0 holds nothing, it must be the value of rank 0\n"
        "round 1: 0>1 3  1>2 0  2>3 1  3>0 2",
        "scatter own-crash on 4 ranks: broken.py, line 24: IndexError: list index out of range; mend its builder",
        "all_gather own-slow on 4 ranks: the claim is 3 a + 3/4 V/B, and the schedule takes 4 a + 1 V/B: its alpha is 1 too "
        "small and its beta is 1/4 too small",
    ]
    assert done.err.startswith("emu: verify: 3 of 3 fail; all_gather own-short on 4 ranks: proof: at the end: rank 3, slot 0")
    assert png.read_bytes().startswith(b"\x89PNG")


LATE = """from fractions import Fraction
import numpy as np
from emu import Claim, Schedule, Sends, collective

@collective("all_gather", "own-late", claim=Claim("rank", alpha=lambda n: 1, beta=lambda n: Fraction(n - 1, n)))
def late(n):
    r = np.arange(n)
    rounds = n - 2 if n == {wrong} else n - 1
    return Schedule.build(n, n, [Sends(r, (r + 1) % n, (r - t) % n) for t in range(rounds)])
"""


def test_a_wrong_result_is_told_before_a_claim_that_fails_at_fewer_ranks(emu, tmp_path: Path) -> None:
    """The table names the failure that the text explains, and a claim alone leaves nothing to draw."""
    path, png = tmp_path / "late.py", tmp_path / "late.png"
    path.write_text(LATE.format(wrong=4))
    done = emu("verify", "--import", str(path), "--png", str(png))
    assert "FAILS on 4 ranks " in done.out.splitlines()[1]
    assert "\nall_gather own-late on 4 ranks: proof: at the end: rank 3, slot 0 holds nothing" in done.out
    assert png.exists()
    png.unlink()
    ALGORITHMS._filed.pop("all_gather/own-late")
    path.write_text(f"{LATE.format(wrong=0)}\n")  # Python tells files apart by their second and their size
    done = emu("verify", "--import", str(path), "--png", str(png))
    assert (done.code, png.exists()) == (1, False)
    assert "exact sums, integers, same bits  DIFFERS on 1 rank " in done.out
    said = "on 1 ranks: the claim is 1 a + 0 V/B, and the schedule takes 0 a + 0 V/B: its alpha is 1 too large"
    assert f"\nall_gather own-late {said}\n" in done.out
    assert "verify: all proofs hold and only claims differ, so that there is no round to draw" in done.err


ADDS = """import numpy as np
from emu import Schedule, Sends, collective

@collective("all_gather", "own-adds")
def adds(n):
    r = np.arange(n)
    return Schedule.build(n, n, [Sends(r, (r + 1) % n, (r - t) % n, reduce=True) for t in range(n - 1)])
"""


def test_what_adds_to_memory_that_nobody_wrote_is_refused_by_every_command_that_moves_it(emu, tmp_path: Path) -> None:
    path, xml = tmp_path / "adds.py", tmp_path / "adds.xml"
    path.write_text(ADDS)
    own, board = ("--algorithm", "own-adds", "--import", str(path)), ("--topology", "ub-mesh:board", "--size", "8KiB")
    said = "round 0: rank 1, slot 0 holds nothing, and what rank 0 sends is added to it; let the first write to it be a copy"
    proved = emu("verify", "all_gather", *own)
    assert (proved.code, f"proof: {said} (reduce=False)\nround 0: 0>1 +0  1>0 +1\n" in proved.out) == (1, True)
    ALGORITHMS._filed.pop("all_gather/own-adds")
    benched = emu("bench", "all_gather", *own, *board)
    assert (benched.code, benched.out, benched.err) == (1, "", f"emu: all_gather: {said} (reduce=False)\n")
    ALGORITHMS._filed.pop("all_gather/own-adds")
    shown = emu("show", "collective", "all_gather", "own-adds", "--import", str(path), "--xml", str(xml))
    assert (shown.code, shown.err, xml.exists()) == (1, f"emu: proof: {said} (reduce=False)\n", False)


def test_the_round_of_many_messages_is_told_by_those_with_the_slot(emu, broken: str) -> None:
    done = emu("verify", "all_gather", "--algorithm", "own-short", "--import", broken, "--ranks", "64")
    assert "\nround 61, of its 64 messages those with slot 0: 61>62 0\n" in done.out


def test_a_large_schedule_that_cannot_be_proved_is_listed_and_does_not_fail(emu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RowsError("schedule: 99999999 rows or more, at most 2**24")

    monkeypatch.setattr(verifying, "subject", refuse)
    done = emu("verify", "all_reduce", "--algorithm", "ring", "--ranks", "4")
    assert done.code == 0
    assert done.out.splitlines()[1].split()[5:7] == ["not", "run"]
    assert done.out.splitlines()[2] == "not run: all_reduce ring on 4 ranks: schedule: 99999999 rows or more, at most 2**24"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--max-ranks", "0"), "--max-ranks must be 1 or more, got 0"),
        (("--max-ranks", "8", "--ranks", "4"), "--max-ranks must be given without --ranks, got 8; give one of the two"),
    ],
)
def test_bad_numbers_of_ranks_are_one_line(emu, args: tuple[str, ...], says: str) -> None:
    done = emu("verify", *args)
    assert (done.code, done.err) == (2, f"emu: verify: {says}\n")


def test_one_grid_is_proved_of_the_algorithms_that_take_it(emu) -> None:
    rows = emu("verify", "all_reduce", "--dims", "3x5", "--json").json
    assert {row["algorithm"] for row in rows} >= {"2d-ring", "torus-buckets"}
    assert all((row["shape"], row["proof"]) == ([3, 5], "ok") for row in rows)
    [part] = emu("verify", "all_reduce", "--algorithm", "2d-ring", "--dims", "3x2", "--json").json
    assert (part["ranks"], part["shape"]) == (6, [3, 2])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--dims", "4x4", "--ranks", "16"), "--dims must be given without --ranks, --max-ranks and --cluster ray, got '4x4'"),
        (("--dims", "4y4"), "--dims must be"),
        (("--algorithm", "recursive-doubling", "--dims", "3x5"), "cannot run on 15 ranks; nearest that work: 8, 16"),
    ],
)
def test_a_grid_that_cannot_be_proved_is_one_line(emu, args: tuple[str, ...], says: str) -> None:
    done = emu("verify", "all_reduce", *args)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err


@pytest.mark.parametrize("name", WRITTEN)
def test_an_msccl_program_is_proved_under_its_own_name(emu, tmp_path: Path, name: str) -> None:
    path = tmp_path / "program.xml"
    path.write_text(WRITTEN[name].replace('name="t"', f'name="own-{name}"'))
    (row,) = emu("verify", "--import", str(path), "--json").json
    assert (row["algorithm"], row["proof"], row["claim"]) == (f"own-{name}", "ok", "none")


def test_an_msccl_program_is_shown_and_benched_on_its_own_number_of_ranks(emu, tmp_path: Path) -> None:
    path = tmp_path / "mine.xml"
    path.write_text(WRITTEN["allpairs"].replace('name="t" ', ""))
    shown = emu("show", "collective", "all_reduce", "mine", "--ranks", "4", "--import", str(path))
    assert shown.out.startswith("all_reduce mine on 4 ranks: 3 rounds, 36 slots sent\n")
    ALGORITHMS._filed.pop("all_reduce/mine")
    on = ("--topology", "switch:n=4,bandwidth=50GB/s,latency=500ns", "--size", "4KiB", "--json")
    (row,) = emu("bench", "all_reduce", "--algorithm", "mine", "--import", str(path), *on).json
    assert (row["algorithm"], row["wrong"]) == ("mine", 0)
    ALGORITHMS._filed.pop("all_reduce/mine")
    wrong = emu("show", "collective", "all_reduce", "mine", "--import", str(path))
    assert wrong.err == "emu: all_reduce mine: cannot run on 8 ranks; nearest that work: 4\n"


def test_an_msccl_program_that_cannot_be_filed_is_one_line(emu, tmp_path: Path) -> None:
    path = tmp_path / "ring.xml"
    done = emu("verify", "--import", str(path))
    assert (done.code, f"--import: cannot read {str(path)!r}: No such file or directory" in done.err) == (2, True)
    path.write_text("<algo")
    assert "msccl: the file is no XML" in emu("verify", "--import", str(path)).err
    path.write_bytes(b"\xff\xfe\xff")
    assert "it is no text; give the path of an MSCCL XML file" in emu("verify", "--import", str(path)).err
    path.write_text(WRITTEN["ring"].replace('name="t" ', ""))
    twice = "collective 'all_reduce/ring' is defined twice; give one of them another name"
    assert twice in emu("verify", "--import", str(path)).err
