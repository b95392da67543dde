"""An algorithm that has more rows than memory should hold is proved from its translation, as far as it has one."""

import pytest

from collectives import exchange
from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm
from emu.collective.claim import Claim
from emu.collective.proof import ScheduleFault
from emu.collective.schedule import Schedule, Sends
from emu.study.prove.verify import prove_algorithm, ranks_to, shapes_of, subject, verify


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let memory hold 100 rows."""
    for module in ("collective.schedule", "study.prove.verify"):
        monkeypatch.setattr(f"emu.{module}.MAX_ROWS", 100)


@pytest.mark.usefixtures("few_rows")
def test_a_large_schedule_is_proved_from_its_translation_and_says_so():
    (row,) = verify([(algorithm("all_to_all", "pairwise"), 64)])
    assert (row.proof, row.proved, row.rows, row.uniform) == ("ok", "by translation", 64 * 63, True)
    assert (row.claim, row.ok, row.failed) == ("not timed", True, False)


@pytest.mark.usefixtures("few_rows")
def test_a_large_schedule_without_a_translation_is_not_run_and_does_not_fail():
    (row,) = verify([(algorithm("all_reduce", "halving-doubling"), 16)])
    assert (row.proved, row.ok, row.failed, row.uniform) == ("not run", False, False, False)
    assert row.proof.startswith(f"schedule: {16 * 15} rows or more, at most 2**24")  # of either half


@pytest.mark.usefixtures("few_rows")
def test_bits_that_depend_on_the_order_of_ranks_are_not_claimed_of_a_translation():
    assert not prove_algorithm(algorithm("all_reduce", "hyperx-direct"), (4, 4)).uniform
    assert prove_algorithm(algorithm("all_reduce", "torus-buckets"), (4, 4)).uniform


@pytest.mark.usefixtures("few_rows")
def test_a_wrong_schedule_is_refused_from_its_translation_too():
    def build(n: int) -> Schedule:
        return Schedule.build(n, n * n, [Sends(0, range(1, n - 1), range(1, n - 1))], translate=(n,), slot_digits=2)

    found = Algorithm("all_to_all", "own", build, None, "")
    done = prove_algorithm(found, 32)
    assert done.said == "proof: at the end: rank 31, slot 31 holds nothing, it must be the value of rank 0"
    assert (done.how, done.fault) == ("", ScheduleFault(-1, 31, 31))
    assert subject(found, 32)[0].n_rows == 30


def test_small_schedules_are_proved_row_by_row():
    (row,) = verify([(algorithm("all_to_all", "pairwise"), 5)])
    assert (row.proved, row.rows) == ("exact", 20)


def test_a_root_is_named_where_it_is_refused():
    def build(n: int) -> Schedule:
        return Schedule.build(n, n, [Sends(0, range(1, n), range(1, n))])

    found = Algorithm("scatter", "own", build, None, "")
    assert prove_algorithm(found, 5).roots == (0, 2, 4)
    worse = Algorithm("gather", "own", build, None, "")
    assert prove_algorithm(worse, 5).roots == (0,)


def test_what_claims_nothing_is_proved_and_not_timed():
    (row,) = verify([(Algorithm("all_reduce", "own", exchange.all_reduce, None, ""), 3)])
    assert (row.proof, row.claim, row.time_s, row.ok) == ("ok", "none", 0, True)


def test_a_claim_that_fails_is_a_row_that_says_so():
    claim = Claim("rank", alpha=lambda n: n // 0, beta=lambda n: n)
    (row,) = verify([(Algorithm("all_reduce", "own", exchange.all_reduce, claim, ""), 4)])
    assert row.claim.startswith("claim on 4 ranks: ZeroDivisionError: ")
    assert row.failed


def test_numbers_of_ranks_go_up_to_the_most_and_double_above_64():
    assert ranks_to(1) == (1,)
    assert ranks_to(20) == tuple(range(1, 18))
    assert ranks_to(127)[-3:] == (31, 32, 64)
    assert ranks_to(1024)[-4:] == (128, 256, 512, 1024)
    assert ranks_to(1023)[-3:] == (128, 256, 512)


def test_above_64_ranks_the_best_shape_of_each_number_of_dims_is_tried():
    found = algorithm("all_reduce", "torus-buckets")
    shapes = [shape for _, shape in shapes_of([found], [256])]
    assert sorted(shapes, key=len) == [(256,), (16, 16), (4, 8, 8), (4, 4, 4, 4)]
    assert [shape for _, shape in shapes_of([found], [64])] == list(found.shapes(64))


def test_what_takes_none_of_the_numbers_is_tried_on_the_least_that_it_takes():
    def shapes(n: int) -> list[int]:
        return [n] * (n % 24 == 0)

    found = Algorithm("all_reduce", "own", exchange.all_reduce, None, "", shapes)
    assert shapes_of([found]) == []
    assert shapes_of([found], each=True) == [(found, 24)]
    every = [a for _, a in ALGORITHMS]
    assert shapes_of(every, each=True) == shapes_of(every)
