"""The rates of a step: model FLOPs, those that are worked out again, and their shares of the peak."""

import pytest

from emu.model.generate.generate import generate
from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.study.training.step.rate import Products, kind_of, messages_of, peak_notes, products_of, rate, work_of
from emu.trace.device.device import Device
from emu.trace.timed_dtype import AS_RAN
from emu.trace.trace import Group
from tests.trace.laid import Words, trace_of

NPU = Device("npu", {"float32": 1e12, "bfloat16": 4e12}, hbm_Bps=1e12)
B, L, S, H, V = 64, 96, 2048, 12288, 50_257  # of GPT-3: sequences, layers, tokens, hidden, words
MODEL_FLOPS = 72 * B * L * S * H**2 * (1 + S / (6 * H) + V / (12 * H * L))
ATTENTION_FORWARD = 4 * B * L * S**2 * H
LAYERS_FORWARD = 24 * B * L * S * H**2 + ATTENTION_FORWARD


def noted(recompute):
    return dict(work_of(MODELS.find("gpt3-175b"), Plan(recompute=recompute, global_batch=B, seq=S)))


@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("selective", ATTENTION_FORWARD), ("full", LAYERS_FORWARD)])
def test_flops_of_a_step_are_those_of_the_paper_with_what_is_worked_out_again(recompute, again):
    """Korthikanti et al. (2022), appendix A; but for biases and norms, which it leaves out."""
    tokens, own, more = map(int, noted(recompute).values())
    assert tokens == B * S
    assert own == pytest.approx(MODEL_FLOPS, rel=1e-3)
    assert more == pytest.approx(again, rel=1e-3)


def test_rates_are_of_the_peak_in_which_most_is_computed_and_of_all_ranks():
    words = Words()
    rows = [words.compute(1, dtype="float32"), words.compute(2, dtype="bfloat16"), words.mark()]
    bare = trace_of(words.events(*rows))
    meta = tuple(work_of(MODELS.find("gpt3-175b"), Plan(recompute="full", global_batch=B, seq=S)))
    trace = trace_of(words.events(*rows), meta=meta)
    products = products_of(trace, NPU, "float32")
    assert rate(bare, 8, 1.0, products) == {}
    found = rate(trace, 8, 1e6, products)
    assert found["tokens_per_s"] == B * S / 1e6
    assert found["mfu"] == pytest.approx(MODEL_FLOPS / 1e6 / (8 * 4e12), rel=1e-3)
    assert found["hfu"] / found["mfu"] == pytest.approx(1 + LAYERS_FORWARD / MODEL_FLOPS, rel=1e-4)
    assert rate(trace, 8, 0.0, products) == dict.fromkeys(found, 0)
    assert peak_notes(trace, NPU, products) == ("MFU and HFU divide by the peak of bfloat16, in which 66.7 % of the FLOPs are",)
    assert peak_notes(bare, NPU, products) == peak_notes(trace, NPU, products_of(trace, NPU, "bfloat16")) == ()


def test_products_are_counted_for_every_rank_of_their_role_and_set_up_is_none():
    words = Words()
    of_two = words.events(words.compute(1), words.compute(9, step=0), words.mark())
    of_one = words.events(words.compute(2, dtype="bfloat16"), words.mark())
    trace = trace_of(of_two, of_one, role_of_rank=(0, 0, 1))
    assert products_of(trace, NPU, "as-ran") == (Products("bfloat16", 0.5, 4e12), Products("float32", 0.5, 1e12))
    assert products_of(trace, NPU, "bfloat16") == (Products("bfloat16", 1.0, 4e12),)


def test_messages_are_told_by_their_dtypes_in_the_order_of_their_names():
    """Experts send how many rows go, the rows there and back, and gradients; dtypes that are only computed in are not told."""
    plan, stack = parse_plan("dp=2,ep=2", global_batch=2, seq=16), parse_stack("software=megatron,dispatch=float8_e4m3fn")
    trace = generate(MODELS.find("mixtral-tiny"), plan, stack)
    assert messages_of(trace, AS_RAN) == ("bfloat16", "float32", "float8_e4m3fn", "int64")


@pytest.mark.parametrize(
    ("meta", "axis"), [(("experts of a layer", "8"), "dp"), (("another", "note"), "ep"), (("another", "note"), "dp")]
)
@pytest.mark.parametrize("dtypes", [("bfloat16",), ("bfloat16", "float8_e4m3fn"), ()])
def test_a_step_is_of_the_kind_of_its_experts_and_of_the_narrowest_of_its_products(meta, axis, dtypes):
    """A trace of a model notes its experts; a script is known by the axis of a group."""
    words = Words()
    trace = trace_of(
        words.events(words.collective(4)),
        role_of_rank=(0, 0),
        groups=(Group(axis, (0, 1)), Group("world", (0, 1))),
        meta=(meta,),
    )
    products = [Products(dtype, 1 / len(dtypes), 1e12) for dtype in dtypes]
    assert kind_of(trace, products) == (meta[0] != "another" or axis == "ep", "float8_e4m3fn" in dtypes)
