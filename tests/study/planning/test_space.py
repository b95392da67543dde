"""The plans that are searched, against those that other code enumerates."""

import pytest

from emu.model.generate.generate import roles_by_place
from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import WORDS
from emu.model.stack.stack import SOFTWARE, Stack, find_software
from emu.study.planning.request_times.placed_groups import PlacedGroups
from emu.study.planning.request_times.rates import Rates
from emu.study.planning.space import Space, placements
from emu.topology.catalogue import build_topology
from tests.study.planning.enumerated import dealt, plans, virtual_stages

ALONE = {"tp": 1, "cp": 1, "recompute": "none", "sharding": "ddp", "microbatch": 1}


def searched(model, places, software, **given):
    """Return, by the number of virtual stages, the layers of stages in all plans of so many microbatches that can run."""
    found = {}
    space = Space(MODELS.find(model), Stack(find_software(software)), places, 8 * places, 128, {**ALONE, "pp": places, **given})
    for plan in space.plans():
        found.setdefault(plan.vp, set()).add(plan.layers)
    return found


@pytest.mark.parametrize("software", [*SOFTWARE])
@pytest.mark.parametrize(
    ("model", "places", "virtual"),
    [
        ("llama3-70b", 4, [1, 2, 4, 5, 8, 10, 16, 20]),  # 80 layers: 20, 10, 5, 4, 2 and 1 to a stage, and 8 and 16 unevenly
        ("llama3-70b", 8, [1, 2, 4, 5, 8, 10]),
        ("llama3.1-405b", 9, [1, 2, 4, 7, 8, 14]),  # 126
        ("llama3-8b", 2, [1, 2, 4, 8, 16]),  # 32
        ("gpt3-175b", 6, [1, 2, 4, 8, 16]),  # 96
        ("megatron-gpt-530b", 7, [1, 2, 3, 4, 5, 8, 15]),  # 105
    ],
)
def test_every_number_of_virtual_stages_that_deals_the_layers_evenly_is_searched(model, places, virtual, software):
    layers = MODELS.find(model).layers
    assert virtual_stages(layers, places) == virtual
    found = searched(model, places, software)
    assert sorted(found) == virtual
    for vp in virtual:
        stages = dealt(layers, places * vp)
        assert found[vp] == {() if len(set(stages)) == 1 else tuple(stages)}


def test_of_llama_405b_the_ends_of_128_stages_have_the_embedding_and_the_head_alone():
    """The plan that trained it has 126 layers on 16 places of 8 stages each."""
    found = searched("llama3.1-405b", 16, "megatron")
    assert sorted(found) == virtual_stages(126, 16) == [1, 2, 4, 8]
    assert found[8] == {(0, *[1] * 126, 0)}
    assert found[1] == {(7, *[8] * 14, 7)}


@pytest.mark.parametrize("npus", [12, 64])
def test_plans_come_by_tp_then_cp_then_pp_the_smallest_first(npus):
    space = Space(MODELS.find("llama3.1-405b"), Stack(find_software("megatron")), npus, npus, 2048, {"recompute": "none"})
    axes = list(dict.fromkeys((plan.tp, plan.cp, plan.pp) for plan in space.plans()))
    assert axes == sorted(axes)
    assert min(len({sizes[i] for sizes in axes}) for i in range(3)) > 2


def test_virtual_stages_that_are_given_are_the_only_ones():
    assert searched("llama3-70b", 4, "megatron", vp=5).keys() == {5}


@pytest.mark.parametrize(
    ("model", "npus", "batch", "seq"),
    [("llama-tiny", 2, 2, 64), ("llama-tiny", 6, 6, 48), ("gpt-moe-tiny", 4, 4, 64), ("nemotron-tiny", 8, 4, 16)],
)
@pytest.mark.parametrize("software", [*SOFTWARE])
def test_the_plans_of_a_space_are_those_that_other_code_enumerates_each_once(model, npus, batch, seq, software):
    found = [*Space(MODELS.find(model), Stack(find_software(software)), npus, batch, seq).plans()]
    assert set(found) == plans(MODELS.find(model), software, npus, batch, seq)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("model", ["llama-tiny", "mixtral-tiny"])
def test_every_word_of_a_plan_is_searched_or_told_not_to_be(model):
    """For a model without experts, words of experts are neither searched nor told."""
    spaces = [Space(MODELS.find(model), Stack(find_software(software)), 8, 8, 64) for software in SOFTWARE]
    every = [plan for space in spaces for plan in space.plans()]
    searched = {word for word in WORDS if len({getattr(plan, word) for plan in every}) > 1}
    of_experts = {"ep", "etp", "capacity", "imbalance"} if not MODELS.find(model).experts else set()
    for space in spaces:
        told = {told.split()[0] for told in space.left_out}
        assert set(WORDS) <= searched | told | of_experts
        assert not told & of_experts
        assert {"clip", "dropout"} <= told - searched
        own = Space(space.model, space.stack, 8, 8, 64, {"clip": 0.0, "vp": 1})
        assert set(own.left_out) == {each for each in space.left_out if each.split()[0] not in ("clip", "vp")}


def test_of_four_axes_as_many_placements_are_searched_as_is_told():
    four = Plan(tp=2, cp=2, dp=2, pp=2, global_batch=8, seq=64)
    assert len(placements(four)) == 8
    assert "all but 8 of the 24 placements of 4 axes" in Space(MODELS.find("llama-tiny"), Stack(), 16, 8, 64).left_out


@pytest.mark.parametrize("software", [*SOFTWARE])
def test_a_request_is_timed_for_every_number_that_its_communicator_may_have(software):
    """Routes that a hash spreads differ by that number, so that a bound is the least over all of them."""
    model, topology = MODELS.find("gpt-moe-tiny"), build_topology("fat-tree:radix=8")
    stack = Stack(find_software(software))
    found = [*Space(model, stack, 16, 8, 64, {"recompute": "none", "microbatch": 1}).plans()]
    for plan in found[:: len(found) // 60]:
        axes = {axis for of_place in roles_by_place(model, plan, stack) for role in of_place for axis in role.tape.axes}
        assert len(axes) <= PlacedGroups.of(topology, plan, placements(plan)[0], Rates.of(topology)).numbers
