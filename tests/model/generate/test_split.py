"""Backwards in two are generated as PyTorch's pipelines run them: gradients of what came in first, those of weights later.

`pytest -m slow tests/model/generate/test_split.py` runs them all.
"""

import pytest

from emu.model.generate.part import Part
from emu.model.memory.layer_memory import Ledger
from emu.model.memory.pass_memory import StageMemory
from emu.model.model import find_model
from emu.model.operator import NORM, PRODUCT
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from tests.four_layers import four_layers
from tests.model.generate.executed import compared

LAYERS = "layers=1,2,2,1"
LLAMA = [
    f"pp=2,vp=2,order=zbv,{LAYERS}",
    "pp=3,vp=2,order=zbv,dp=2",
    "pp=3,vp=2,order=zbv,dp=2,sharding=zero1",
    "pp=3,vp=2,order=zbv,tp=2,sp",
    "pp=3,vp=2,order=zbv,recompute=full",
    "pp=3,vp=2,order=zero-bubble",
    "pp=3,vp=2,order=zero-bubble,tp=2",
    "pp=3,vp=2,order=zero-bubble,tp=2,sp,recompute=full",
    "pp=3,vp=2,order=dualpipev,dp=2",
]
# By architecture, four layers of each.
DEEPER = [
    ("nemotron", "order=zero-bubble,cp=2,recompute=selective"),
    ("mixtral", "order=zbv,dp=2,ep=2"),
    ("gpt", "order=zbv"),
    ("nemotron", "order=zbv,recompute=selective"),
    ("nemotron", "order=dualpipev,cp=2,dp=2"),
    ("nemotron", "order=zbv,cp=2,cp_comm=all_gather,recompute=full"),
    ("nemotron", "order=dualpipev,cp=2,tp=2,sp"),
    ("deepseek", "order=zbv,cp=2"),
    ("deepseek", "order=zbv,dp=2,ep=2"),
    ("deepseek", "order=zero-bubble,ep=2,dp=2,recompute=full"),
    ("qwen3-moe", "order=zero-bubble,cp=2,cp_comm=all_gather"),
    ("qwen3-moe", "order=zbv,tp=2,sp,ep=2,etp=1"),
    ("grok", "order=zbv,dp=2,ep=2,capacity=1.25"),
    ("grok", "order=zero-bubble,cp=2,recompute=full"),
    ("mixtral", "order=zero-bubble,dp=2,etp=2"),
    ("mixtral", "order=dualpipev,dp=2,ep=2,recompute=full"),
    ("mixtral", "order=zbv,cp=2,dp=2,ep=2,recompute=selective"),
    ("gpt-moe", "order=zero-bubble,dp=2,ep=2,capacity=2"),
    ("nemotron", "order=zbv,tp=2,sp,dp=2,sharding=zero1"),
    ("gpt", "order=zero-bubble,dp=2"),
    ("gpt", "order=dualpipev,dp=2,clip=0.1"),
    ("gpt", "order=zbv,tp=2"),
    ("gpt-moe", "order=dualpipev,dp=2,ep=2"),
    ("grok", "order=zbv,tp=2,sp,dp=2,sharding=zero1"),
    ("gpt", "order=zero-bubble,tp=2,sp,recompute=full"),
    ("gpt", "order=zero-bubble,cp=2,recompute=selective"),
]
QUICK = 3  # of these


@pytest.mark.parametrize("words", [LLAMA[0], *(pytest.param(words, marks=pytest.mark.slow) for words in LLAMA[1:])])
def test_backwards_in_two_are_what_runs(words):
    batch = 16 if "dp=2" in words else 4 if LAYERS in words else 8
    assert compared(words, "llama-small", seq=4, global_batch=batch).first is None


@pytest.mark.parametrize(
    ("name", "words"), [*DEEPER[:QUICK], *(pytest.param(*case, marks=pytest.mark.slow) for case in DEEPER[QUICK:])]
)
def test_backwards_in_two_of_an_architecture_are_what_runs(name, words, tmp_path):
    """With what recomputes, what cuts a sequence, experts, whose gradients autograd gives no notice of, and tied tables."""
    batch = (8 if "dp=2" in words else 4) * (2 if "dualpipev" in words else 1)
    assert compared(f"pp=2,vp=2,{words}", four_layers(name, tmp_path), seq=8, global_batch=batch).first is None


@pytest.mark.slow
@pytest.mark.parametrize("words", ["pp=4,vp=2,order=zbv", "pp=4,vp=2,order=dualpipev"])
@pytest.mark.parametrize("name", ["nemotron-tiny", "mixtral-tiny"])
def test_more_places_with_backwards_in_two_are_what_runs(name, words):
    assert compared(words, name, seq=4).first is None


@pytest.mark.parametrize("words", ["pp=2,order=zero-bubble,vp=2", "pp=2,tp=2,order=zbv,vp=2"])
def test_what_a_split_backward_has_kept_for_its_weights_is_freed_as_their_gradients_are_made(words):
    model, plan = find_model("llama-tiny"), parse_plan(words, global_batch=4, seq=64)
    layer = Part(model, plan, Stack(), model.kinds[0], None).memory
    ledger = Ledger()
    StageMemory((layer,)).backward_weight(ledger, first=False)
    made = [layer.made_bytes(each) + (layer.given(each) if each.kind == NORM else 0) for each in layer.operators]
    assert any(map(layer.given, layer.operators))
    assert 0 < sum(ledger.peak) <= max(made)  # never above what lived before, but for the gradient that is being made
    assert ledger.now.activations == -layer.kept - sum(map(layer.given, layer.operators))


@pytest.mark.parametrize("name", ["llama-tiny", "gpt-tiny"])
def test_each_recomputation_of_a_split_backward_keeps_what_later_operators_need(name):
    """Each operator's half recomputes the layer; every copy keeps the operands whose gradients are still to be made."""
    model, plan = find_model(name), parse_plan("pp=2,order=zero-bubble,vp=2,recompute=full", global_batch=4, seq=64)
    layer = Part(model, plan, Stack(), model.kinds[0], None).memory
    ledger = Ledger()
    StageMemory((layer,)).backward_weight(ledger, first=False)
    operators = [(o, saved) for o, saved in zip(layer.operators, layer.saved, strict=True)]
    operands = [{PRODUCT: saved, NORM: min(saved, layer.given(o))}.get(o.kind, 0) for o, saved in operators]
    copies, given, lives, peak = [], 0, 0, 0
    for i, (operator, _) in enumerate(operators):
        if layer.given(operator):
            copies.append([layer.again - sum(operands), *operands[i:]])
        lives = sum(map(sum, copies)) - given
        peak = max(peak, lives + layer.made_bytes(operator) + layer.given(operator) * (operator.kind == NORM))
        copies = [[rest, *kept[1:]] for rest, *kept in copies]
        given += layer.given(operator)
    assert len(copies) > 3
    assert ledger.peak.activations == peak


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("name", ["llama-tiny", "gpt-tiny"])
def test_nothing_of_a_pass_lives_when_both_halves_of_its_backward_are_over(name, recompute):
    model, plan = find_model(name), parse_plan(f"pp=2,order=zero-bubble,vp=2,recompute={recompute}", global_batch=4, seq=64)
    layer = Part(model, plan, Stack(), model.kinds[0], None).memory
    ledger, stage = Ledger(), StageMemory((layer, layer))
    for place in range(2):
        assert not list(stage.forward(place, ledger))  # no experts, whose weights would come and go
    kept = ledger.now.activations
    stage.backward_input(ledger)
    assert ledger.now.activations >= kept > 0  # all that the forward kept lives on
    stage.backward_weight(ledger, first=False)
    assert ledger.now.activations == 0
