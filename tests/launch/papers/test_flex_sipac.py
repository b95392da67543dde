"""Rows of the Flex-SiPAC paper: the printed rule beside the collective of the catalogue, and the systems of figure 7."""

import pytest

from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.proof import ProofError, prove
from emu.collective.shape import PartialGrid
from launch.papers.flex_sipac import times
from launch.papers.flex_sipac.times import printed_rule
from launch.papers.networks import collective_s


@pytest.mark.parametrize(("r", "levels", "n"), [(2, 2, 4), (3, 2, 6), (4, 2, 12), (2, 3, 8), (3, 3, 18), (4, 3, 32)])
def test_on_whole_digits_the_printed_rule_is_the_collective_of_the_catalogue(r, levels, n):
    part = PartialGrid((r,) * levels, tuple(range(n)))
    plan = printed_rule(part)
    assert prove(plan, operation("all_reduce", n)).uniform
    assert plan.digest() == algorithm("all_reduce", "flex-sipco").schedule(part).expand().digest()


@pytest.mark.parametrize(("r", "levels", "n"), [(2, 3, 6), (3, 3, 12)])
def test_on_a_part_of_a_digit_the_printed_rule_gives_wrong_sums(r, levels, n):
    with pytest.raises(ProofError, match=r"round 3: rank 0, slot . is written by"):
        prove(printed_rule(PartialGrid((r,) * levels, tuple(range(n)))), operation("all_reduce", n))
    answer = times.ANSWERS["fs-flex-shape"]()
    assert not answer.holds
    assert any(words.startswith(f"{n} of {r**levels} CUs, r={r}: proof: ") for words in answer.notes)


def test_the_gain_of_figure_7_is_over_as_many_gpus_at_one_giant_switch():
    flexible = collective_s("sipac:r=8,L=3,w=63", "all_reduce", "sipco", (8, 8, 8), 2**20)
    giant = collective_s("switch:n=512,bandwidth=240GB/s,latency=300ns", "all_reduce", "direct", 512, 2**20)
    half = collective_s("dgx-h100:superpod:bandwidth=240GB/s", "all_reduce", "direct", 256, 2**20)
    answer = times.ANSWERS["fs-26"]()
    assert answer.ours == pytest.approx(100 * (1 - flexible / giant), abs=1e-9)
    assert f"it is {100 * (1 - flexible / half):.1f} %" in " ".join(answer.notes)
