from fractions import Fraction

import pytest

from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm, collective, compact_schedule, schedule
from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.collective.claim import Claim
from emu.collective.operation import OPERATIONS
from emu.collective.schedule import Schedule
from emu.collective.shape import any_rank_count
from emu.errors import InputError
from emu.study.prove.verify import verify

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
        "dispatch": "flat",
        "combine": "flat",
    }
    assert {operation: Choice().name(operation) for operation in OPERATIONS} == promised


def test_a_choice_names_other_than_the_default():
    choice = Choice.parse(("all_reduce=direct", "all_to_all=pairwise"))
    assert [choice.name(o) for o in ("all_reduce", "all_to_all", "gather")] == ["direct", "pairwise", "binomial"]
    assert choice.schedule(Request("all_reduce", (0, 1, 2, 3))).digest() == schedule("all_reduce", "direct", 4).digest()


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("ring", "--algorithm: a choice must be auto or OPERATION=ALGORITHM, got 'ring'; e.g. all_reduce=direct"),
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
        with pytest.raises(InputError, match="is defined twice"):
            collective("all_reduce", "test-nothing", claim=NOTHING)(build)
    finally:
        del ALGORITHMS._filed["all_reduce/test-nothing"]


def test_a_builder_of_no_operation_is_refused():
    with pytest.raises(InputError, match="no operation is called 'all_redude'"):
        collective("all_redude", "test-nothing", claim=NOTHING)


def of(build, shapes=any_rank_count) -> Algorithm:
    return Algorithm("all_reduce", "own", build, None, "", shapes)


def only(*numbers: int):
    return lambda n: [n] * (n in numbers)


@pytest.mark.parametrize(
    ("takes", "asked", "says"),
    [
        ((256, 512), 400, "cannot run on 400 ranks; nearest that work: 256, 512"),
        ((4,), 1000, "cannot run on 1000 ranks; nearest that work: 4"),
        ((4, 60), 5, "cannot run on 5 ranks; nearest that work: 4, 60"),
        ((), 3, "cannot run on 3 ranks; nor any number to 66"),
        ((999,), 100, "cannot run on 100 ranks; nor any number to 199"),
    ],
)
def test_the_nearest_numbers_of_ranks_that_work_are_told_however_far(takes, asked, says):
    with pytest.raises(InputError, match=says):
        of(None, only(*takes)).fit(asked)


def test_rows_of_rank_0_are_enough_to_store():
    found = algorithm("all_to_all", "pairwise")
    assert found.compact_schedule(5).translate == (5,)
    assert found.compact_schedule(5).expand().digest() == found.schedule(5).digest()
    assert compact_schedule("all_to_all", "pairwise", 5) is compact_schedule("all_to_all", "pairwise", 5)
    assert compact_schedule("all_to_all", "pairwise", 5).expand().digest() == schedule("all_to_all", "pairwise", 5).digest()


def crash(n: int) -> Schedule:
    raise KeyError(n)


def test_a_builder_that_fails_is_one_line_with_its_own():
    line = crash.__code__.co_firstlineno + 1
    says = f"all_reduce own on 3 ranks: test_algorithm.py, line {line}: KeyError: 3; mend its builder"
    with pytest.raises(InputError, match=says):
        of(crash).schedule(3)
    with pytest.raises(InputError, match=r"all_reduce own on 3 ranks: TypeError: .*; mend its builder"):
        of(lambda: None).schedule(3)


def test_a_builder_that_returns_no_schedule_is_refused():
    with pytest.raises(InputError, match="what its builder returns must be a Schedule, got 'NoneType'"):
        of(lambda _: None).schedule(2)


def test_a_chooser_serves_what_is_not_named_and_the_default_what_it_leaves():
    def of_small_ones(request):
        return AlgorithmOnDims("direct") if request.elements < 10 else None

    choice = Choice({"all_gather": "bruck"}, chooser=of_small_ones)
    small, large = (Request("all_reduce", (0, 1, 2), elements=n) for n in (1, 100))
    assert [choice.algorithm_for(r).algorithm for r in (small, large, small._replace(operation="all_gather"))] == [
        "direct",
        "ring",
        "bruck",
    ]
    assert choice.schedule(small).digest() == schedule("all_reduce", "direct", 3).digest()


@pytest.mark.parametrize("word", ["ring", "ring@4", "torus-buckets@2:4x4", "flex-sipco:4x4:0-7,9"])
def test_what_serves_is_read_as_it_is_written(word):
    assert str(AlgorithmOnDims.parse("all_reduce", word)) == word


def test_an_algorithm_on_more_channels_keeps_what_it_claims_of_ports_that_channels_share():
    for operation, name in (("all_gather", "hyperx-direct"), ("all_reduce", "ring"), ("all_reduce", "double-tree")):
        plain, parted = algorithm(operation, name), algorithm(operation, f"{name}@3")
        assert (parted.name, parted.default) == (f"{name}@3", False)
        shape = plain.fit(9)
        assert parted.schedule(shape).n_slots == 3 * plain.schedule(shape).n_slots
        (row,) = verify([(parted, shape)])
        assert row.ok
        shared = plain.claim is not None and plain.claim.fabric in ("rank", "pair")
        assert (parted.claim is not None) == shared


@pytest.mark.parametrize("name", ["ring@", "ring@0", "ring@x", "ring@-1", "ring@12345", "ring@2@2"])
def test_channels_that_are_no_number_are_refused(name):
    with pytest.raises(InputError, match=r"channels after the @ must be a number of 1 to 9999, got .*; such as ring@4"):
        algorithm("all_reduce", name)
