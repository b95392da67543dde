from fractions import Fraction

import pytest

from emu.collective.algorithm import ALGORITHMS, Choice, algorithm, collective, schedule
from emu.collective.claim import Claim
from emu.collective.operation import OPERATIONS
from emu.collective.schedule import Schedule
from emu.errors import InputError

NOTHING = Claim("rank", alpha=lambda _: 0, beta=lambda _: Fraction(0))


def test_every_operation_has_one_default():
    for operation in OPERATIONS:
        defaults = [a.name for _, a in ALGORITHMS if a.operation == operation and a.default]
        assert [Choice().name(operation)] == defaults


def test_the_defaults_are_those_that_are_promised():
    promised = {
        "all_reduce": "ring",
        "reduce_scatter": "ring",
        "all_gather": "ring",
        "all_to_all": "at-once",
        "broadcast": "binomial",
        "reduce": "binomial",
        "scatter": "binomial",
        "gather": "binomial",
    }
    assert {operation: Choice().name(operation) for operation in OPERATIONS} == promised


def test_a_choice_names_other_than_the_default():
    choice = Choice.parse(("all_reduce=direct", "all_to_all=pairwise"))
    assert [choice.name(o) for o in ("all_reduce", "all_to_all", "gather")] == ["direct", "pairwise", "binomial"]
    assert choice.schedule("all_reduce", 4).digest() == schedule("all_reduce", "direct", 4).digest()


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("ring", "--algorithm: a choice must be OPERATION=ALGORITHM, got 'ring'; e.g. all_reduce=direct"),
        ("all_reduce=rign", "no all_reduce algorithm is called 'rign'; did you mean ring"),
        ("allreduce=ring", "no operation is called 'allreduce'; did you mean all_reduce"),
    ],
)
def test_a_choice_of_nothing_that_is_there_is_refused(word, says):
    with pytest.raises(InputError, match=says):
        Choice.parse((word,))


def test_no_ranks_are_refused_before_anything_is_built():
    with pytest.raises(InputError, match="all_reduce: ranks must be 1 or more, got 0"):
        schedule("all_reduce", "ring", 0)


def test_a_schedule_is_rotated_to_its_root():
    assert schedule("broadcast", "binomial", 4, 3).src[0] == 3
    assert set(schedule("gather", "binomial", 4, 1).dst[-2:].tolist()) == {1}


@pytest.mark.parametrize(("operation", "root"), [("all_reduce", 1), ("broadcast", 4), ("broadcast", -1)])
def test_a_root_that_cannot_be_is_refused(operation, root):
    name = Choice().name(operation)
    with pytest.raises(InputError, match=f"{operation}: root must be"):
        schedule(operation, name, 4, root)


def test_a_builder_filed_by_its_author_is_found_with_its_first_line():
    @collective("all_reduce", "test-nothing", claim=NOTHING)
    def build(n: int) -> Schedule:
        """Do nothing.

        Not this line.
        """
        return Schedule.build(n, 1, [])

    try:
        found = algorithm("all_reduce", "test-nothing")
        assert (found.key, found.summary, found.default) == ("all_reduce/test-nothing", "Do nothing.", False)
        assert found.build is build
        with pytest.raises(InputError, match="filed twice"):
            collective("all_reduce", "test-nothing", claim=NOTHING)(build)
    finally:
        del ALGORITHMS._filed["all_reduce/test-nothing"]


def test_a_builder_of_no_operation_is_refused():
    with pytest.raises(InputError, match="no operation is called 'all_redude'"):
        collective("all_redude", "test-nothing", claim=NOTHING)
