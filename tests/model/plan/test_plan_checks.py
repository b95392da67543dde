"""Layers of stages: even ones, those that a plan gives, and what is proposed where they do not divide, by trying all."""

from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model
from emu.model.plan.stage_layers import even_layers, part_names, stage_layers

TINY = MODELS.find("llama-tiny")


def of_layers(layers: int):
    return replace(TINY, kinds=tuple(f"kind{i}" for i in range(layers)))


@pytest.mark.parametrize("stages", range(1, 9))
def test_even_layers_differ_by_one_at_most_with_the_fewer_at_both_ends(stages):
    for layers in range(20):
        found = even_layers(layers, stages)
        assert len(found) == stages
        assert sum(found) == layers
        assert max(found) - min(found) <= 1
        most = [stage for stage, own in enumerate(found) if own == max(found)]
        assert most == list(range(most[0], most[-1] + 1))
        before, after = most[0], stages - 1 - most[-1]
        assert after - before in (0, 1) or max(found) == min(found)


@pytest.mark.parametrize("vp", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 6, 12, 18, 20])
def test_a_pipeline_that_does_not_divide_the_layers_is_told_the_nearest_that_does(layers, vp):
    model = of_layers(layers)
    for pp in range(2, 12):
        plan = Plan(pp=pp, vp=vp, global_batch=pp)
        if layers % (pp * vp) == 0:
            assert stage_layers(plan, model) == (layers // (pp * vp),) * (pp * vp)
            continue
        with pytest.raises(InputError) as raised:
            stage_layers(plan, model)
        told = str(raised.value)
        assert told.startswith(f"plan: pp * vp must be a divisor of the {layers} layers of llama-tiny, got {pp * vp}; take ")
        fits = [other for other in range(1, layers + 1) if layers % (other * vp) == 0]
        near = [*[other for other in fits if other < pp][-1:], *[other for other in fits if other > pp][:1]]
        taken = told.partition("; take ")[2].partition(", or say")[0]
        if near:
            assert taken == f"pp={' or '.join(map(str, near))}"
        else:
            assert taken.startswith("pp * vp = ")
        assert (", or say what each stage has: layers=" in told) == (pp * vp <= layers)


@pytest.mark.parametrize("sizes", [(2, 3), (1, 1, 3), (0, 5), (0, 5, 0), (1, 1, 1, 2)])
def test_each_stage_has_its_layers_and_the_ends_have_the_words(sizes):
    model, plan = of_layers(5), Plan(pp=len(sizes), layers=sizes, global_batch=8)
    assert stage_layers(plan, model) == sizes
    parts = [part_names(plan, model, stage) for stage in range(len(sizes))]
    assert parts[0][0] == "embedding"
    assert parts[-1][-1] == "head"
    assert [len(part) for part in parts] == [own + (stage == 0) + (stage == len(sizes) - 1) for stage, own in enumerate(sizes)]
    assert [name for part in parts for name in part] == ["embedding", *model.kinds, "head"]
    with pytest.raises(InputError, match=r"^plan: layers must be 6 in all, as llama-tiny has, got 5; take layers="):
        stage_layers(plan, of_layers(6))


def test_the_ranks_that_share_an_expert_divide_its_columns():
    mixtral, said = MODELS.find("mixtral-tiny"), "a divisor of the 24 groups of 4 columns of an expert of mixtral-tiny"
    check_fits_model(Plan(dp=8, etp=8, global_batch=8), mixtral)  # of 96 columns
    with pytest.raises(InputError, match=f"^plan: etp must be {said}, got 5; take etp=2$"):
        check_fits_model(Plan(dp=10, etp=5, global_batch=10), mixtral)
