"""No schedule of the catalogue that is damaged so that its result is wrong is proved."""

import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm
from emu.collective.operation import operation
from tests.collectives.mutants import FAULTS, NS, battery, damaged, made_to_add, refusals, runs_right

TIMES = 64
AT_LEAST = 5000
CATALOGUE = [found for _, found in ALGORITHMS]
EVERY = pytest.mark.parametrize("found", [pytest.param(a, id=a.key) for a in CATALOGUE])


@EVERY
def test_no_damaged_schedule_that_gives_a_wrong_result_is_accepted(found: Algorithm, record_property):
    tried = list(battery(found, TIMES))
    wrong = [mutant for mutant in tried if mutant.wrong]
    for name, count in (
        ("mutants", len(tried)),
        ("wrong", len(wrong)),
        ("wrong and refused", sum(mutant.refused for mutant in wrong)),
        ("harmless and refused", sum(mutant.refused for mutant in tried if not mutant.wrong)),
    ):
        record_property(name, count)
    assert len(tried) == TIMES
    assert len(wrong) > TIMES // 3
    assert all(mutant.proof and mutant.integers for mutant in wrong)


@EVERY
def test_a_copy_that_is_made_to_add_is_refused_unless_it_is_the_first_of_a_helpers_slot(found: Algorithm):
    """There it adds to 0."""
    random = np.random.default_rng(0)
    n, shape = next((n, shape) for n in range(3, 25) for shape in found.shapes(n))
    built, wanted = found.schedule(shape), operation(found.operation, n)
    for mutant in made_to_add(built, 12):
        (row,) = np.flatnonzero(mutant.reduce != built.reduce)
        before = (mutant.dst[:row] == mutant.dst[row]) & (mutant.slot[:row] == mutant.slot[row])
        right = bool(mutant.dst[row] >= n and not before.any())
        assert runs_right(mutant, wanted, random) == right
        assert [bool(said) for said in refusals(mutant, wanted)] == [not right] * 2


@EVERY
def test_integers_refuse_nothing_that_gives_the_right_result(found: Algorithm):
    assert not [mutant for mutant in battery(found, 10, seed=1) if mutant.integers and not mutant.wrong]


def test_the_battery_is_of_thousands_of_mutants():
    assert TIMES * len(CATALOGUE) >= AT_LEAST


def test_the_row_by_row_reading_finds_what_is_not_damaged_right():
    random = np.random.default_rng(0)
    for found in CATALOGUE:
        for shape in found.shapes(4):
            assert runs_right(found.schedule(shape), operation(found.operation, 4), random), found.key


def test_every_kind_of_damage_is_done_and_none_leaves_a_schedule_as_it_was():
    random, made = np.random.default_rng(0), []
    for n in NS:
        schedule = algorithm("all_reduce", "ring").schedule(n)
        mutants = [damaged(schedule, random) for _ in range(40)]
        assert schedule.digest() not in {mutant.digest() for _, mutant in mutants}
        made += [fault for fault, _ in mutants]
    assert set(made) == {*FAULTS, "several"}
