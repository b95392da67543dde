"""By every pair of axes and settings by which ranks train, a step is generated, and is what they do."""

import pytest

from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import AXES, TITLES
from emu.model.stack.stack import Stack
from tests.model.generate.executed import held_against_executed
from tests.study.training.axes import COVERING, SETTINGS, every_pair, plan_of, spelled, word_of


def test_each_axis_has_values_that_are_paired():
    assert {*AXES, "ep", "etp"} == SETTINGS.keys() & TITLES.keys()


@pytest.mark.parametrize("chosen", COVERING, ids=spelled)
def test_nothing_that_trains_is_refused(chosen):
    plan = plan_of(chosen)
    trace = generate(find_model(word_of(chosen)), plan, Stack())
    assert trace.n_ranks == plan.world


def pytest_generate_tests(metafunc):
    """The pairs take seconds to work out: only where slow tests are collected."""
    if metafunc.function is test_every_pair_and_few_plans_that_have_them_all_are_generated_as_they_run:
        metafunc.parametrize("chosen", dict.fromkeys((*COVERING, *every_pair())), ids=spelled)


@pytest.mark.slow
def test_every_pair_and_few_plans_that_have_them_all_are_generated_as_they_run(chosen):
    assert held_against_executed(word_of(chosen), plan_of(chosen)).first is None
