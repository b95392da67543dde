"""The rates of a step: model FLOPs, those that are worked out again, and their shares of the peak."""

from dataclasses import replace

import pytest

from emu.model.generate.generate import generate
from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.study.training.step.rate import (
    MFU_ASSUMED,
    Products,
    dtype_notes,
    judged,
    kind_of,
    messages_of,
    peak_notes,
    products_of,
    rate,
    timed_dtypes_text,
    with_more_work,
    work_of,
)
from emu.trace.device.device import Device
from emu.trace.device.step_error import RunKind, StepError
from emu.trace.timed_dtype import AS_RAN
from emu.trace.trace import Group
from tests.trace.laid import Words, trace_of

NPU = Device("npu", {"float32": 1e12, "bfloat16": 4e12}, hbm_Bps=1e12)
MEGATRON = parse_stack("software=megatron")
B, L, S, H, V = 64, 96, 2048, 12288, 50_257  # of GPT-3: sequences, layers, tokens, hidden, words
MODEL_FLOPS = 72 * B * L * S * H**2 * (1 + S / (6 * H) + V / (12 * H * L))
ATTENTION_FORWARD = 4 * B * L * S**2 * H
LAYERS_FORWARD = 24 * B * L * S * H**2 + ATTENTION_FORWARD


def noted(recompute):
    return dict(work_of(MODELS.find("gpt3-175b"), Plan(recompute=recompute, global_batch=B, seq=S), MEGATRON))


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
    meta = tuple(work_of(MODELS.find("gpt3-175b"), Plan(recompute="full", global_batch=B, seq=S), MEGATRON))
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


def bare(*, meta=()):
    """A trace of one product."""
    words = Words()
    return trace_of(words.events(words.compute(1), words.mark()), meta=meta)


def test_a_step_is_judged_by_the_runs_of_its_kind_unless_it_is_the_whole_script():
    """Runs of FP8 say nothing of others; FLOPs that the trace notes are counted for each token."""
    asked = []

    class ToldError(StepError):
        def told(self, flops_per_token):
            asked.append(flops_per_token)
            return {"either_way": self.share}

    errors = tuple(ToldError(RunKind(False, fp8), share, "npu", 1, 1, 1) for fp8, share in ((True, 0.5), (False, 0.25)))
    device, products = replace(NPU, step_errors=errors), [Products("float32", 1.0, 1e12)]
    work = (("tokens a step", "6"), ("model FLOPs a step", "30"), ("FLOPs worked out again a step", "12"))
    assert judged(bare(), device, 2, 1.0, products) == {"whole_script": False, "either_way": 0.25}
    noted = judged(bare(meta=work), device, 2, 1.5, products)
    rates = {"tokens_per_s": 4.0, "mfu": pytest.approx(10e-12), "hfu": pytest.approx(14e-12)}
    assert noted == {**rates, "whole_script": False, "either_way": 0.25}
    assert asked == [None, 5.0]
    assert judged(bare(meta=work), NPU, 2, 1.5, []) == {"tokens_per_s": 4.0, "whole_script": False}


def test_more_work_is_of_tokens_and_flops_and_not_of_experts():
    meta = (("tokens a step", "6"), ("model FLOPs a step", "30"), ("FLOPs worked out again a step", "12"))
    grown = with_more_work(bare(meta=(*meta, ("experts of a layer", "8"), ("note", "x"))), 3)
    assert dict(grown.meta) == {
        "tokens a step": "18",
        "model FLOPs a step": "90",
        "FLOPs worked out again a step": "36",
        "experts of a layer": "8",
        "note": "x",
    }


def test_what_is_timed_is_told_with_its_peak_and_its_share():
    both = (Products("bfloat16", 0.75, 4e12), Products("float32", 0.25, 1e12))
    most, rest = "bfloat16, at a peak of 4 TFLOP/s (75 % of the FLOPs)", "float32, at a peak of 1 TFLOP/s (25 % of the FLOPs)"
    told = f"as it ran: products in {most} and {rest}; messages in bfloat16, int64"
    assert timed_dtypes_text(AS_RAN, both, ("bfloat16", "int64")) == told
    assert timed_dtypes_text("float32", (), ("int64",)) == "float32 without TF32: messages in int64"
    assert (
        timed_dtypes_text("tf32", (Products("tf32", 1, 2e12),), ())
        == "float32 as tf32: products in tf32, at a peak of 2 TFLOP/s"
    )
    assert timed_dtypes_text("bfloat16", (), ()) == "float32 as bfloat16"


def test_the_dtype_that_float32_is_timed_as_is_assumed_and_mfu_where_a_step_notes_its_work():
    noted = bare(meta=(("tokens a step", "6"),))
    assert dtype_notes(bare(), "float32") == ()
    assert dtype_notes(noted, "float32") == (MFU_ASSUMED,)
    assert dtype_notes(noted, "bfloat16") == ("what ran in float32 is timed as bfloat16", MFU_ASSUMED)
    [as_ran] = dtype_notes(bare(), AS_RAN)
    assert as_ran.startswith("each operator and message is timed in the dtype that it ran in")


@pytest.mark.parametrize(("dtype", "said"), [("float32", True), ("tf32", True), ("bfloat16", False)])
def test_a_peak_that_no_source_prints_is_told_where_products_take_it(dtype, said):
    products = (Products(dtype, 1.0, 1e12),)
    told = peak_notes(bare(), replace(NPU, assumed="half of the other"), products)
    assert told == ("no source prints a peak of npu for float32: half of the other",) * said
    assert peak_notes(bare(), NPU, products) == ()
