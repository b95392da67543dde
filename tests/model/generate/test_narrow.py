"""Products in FP8: which they are, what the casts around them move, and what is then asked for; h hidden, f ffn, t tokens."""

from collections import Counter

import numpy as np
import pytest

from emu.dtypes import FP8
from emu.model.generate.generate import generate
from emu.model.generate.item import CAST
from emu.model.generate.rank_step import reserved_bytes
from emu.model.model import EMBEDDING, HEAD, MODELS
from emu.model.operator import PRODUCT, Tokens
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.trace.kernel_shape import Kernel
from emu.trace.trace import Kind

LLAMA, MOE = MODELS.find("llama-tiny"), MODELS.find("mixtral-tiny")
B, S = 8, 64
MEGATRON, PYTORCH = "software=megatron", "software=pytorch,weight=float32"


def traced(words, stack, model=LLAMA):
    return generate(model, parse_plan(words, global_batch=B, seq=S), parse_stack(stack))


def rows(trace, rank=0):
    events = trace.events_of(rank)
    return [(events.name[i], events.dtype[i], events.flops[i], int(events.bytes[i])) for i in range(len(events))]


def linear(model=LLAMA):
    """M, N, K of the products of all layers, of the tokens of the whole batch; experts' too, no router's."""
    found = []
    for kind in model.kinds:
        of_layer = model.part(kind, Tokens(S, sequences=B))
        found += [(o, *o.shape) for o in of_layer if o.kind == PRODUCT and not o.routed]
    return found


def cast_bytes(trace):
    return sum(size for name, _, _, size in rows(trace) if name == CAST)


@pytest.mark.parametrize(
    ("model", "stack"),
    [
        (LLAMA, f"{MEGATRON},fp8=delayed"),
        (LLAMA, f"{MEGATRON},fp8=block"),
        (MOE, f"{MEGATRON},fp8=tensor"),
        (LLAMA, f"{PYTORCH},fp8=tensor"),
        (LLAMA, f"{PYTORCH},fp8=row"),
    ],
)
def test_products_of_layers_are_in_fp8_and_no_others(model, stack):
    """Three products for each weight that is no router's and not the head's; the FLOPs are what they were without."""
    wide, narrow = (traced("dp=1,microbatch=2", of, model) for of in (stack.partition(",fp8")[0], stack))
    found = sum(flops for _, dtype, flops, _ in rows(narrow) if dtype == FP8)
    assert found == sum(3 * 2 * m * n * k for _, m, n, k in linear(model))
    assert narrow.events[0].flops.sum() == wide.events[0].flops.sum()
    kernels = {int(k) for k, d in zip(narrow.events[0].kernel, narrow.events[0].dtype, strict=True) if d == FP8}
    assert kernels == {Kernel.PRODUCT}


def test_experts_of_pytorch_stay_in_bfloat16_as_they_are_no_linear_layers():
    narrow = traced("dp=1,microbatch=2", f"{PYTORCH},fp8=tensor", MOE)
    found = sum(flops for _, dtype, flops, _ in rows(narrow) if dtype == FP8)
    assert found == sum(3 * 2 * m * n * k for o, m, n, k in linear(MOE) if not o.experts) > 0


def groups(model=LLAMA):
    """Products that read one input, with its elements and those of all they give: Megatron-LM fuses them."""
    found = []
    for o, m, n, k in linear(model):
        if o.reads_with and found and found[-1][0] == o.reads_with:
            found[-1][2] += m * n
        else:
            found.append([o.reads_with, m * k, m * n, o.cut == "out"])
    return [(read, given, normed) for _, read, given, normed in found]


def test_casts_move_what_transformer_engine_does():
    """A norm writes FP8 itself, which is turned later (2 B); else a kernel casts and turns (4 B), as it does gradients.

    With a scale of its own for each tensor a norm does not write FP8, and a cast reads what it casts once before (6 B).
    """
    found = cast_bytes(traced("dp=1,microbatch=2", f"{MEGATRON},fp8=delayed"))
    expected = sum((2 if normed else 4) * read + 4 * given for read, given, normed in groups())
    assert found == expected
    now = cast_bytes(traced("dp=1,microbatch=2", f"{MEGATRON},fp8=tensor"))
    norms = sum(2 * read for read, _, normed in groups() if normed)
    assert now - found == sum(2 * read + 2 * given for read, given, _ in groups()) + norms


def test_a_kernel_that_scales_blocks_writes_both_copies_and_their_scales():
    """A cast reads 2 B an element and writes 1 B twice, with 4 B a scale of 128 elements; a norm writes no FP8."""
    found = cast_bytes(traced("dp=1,microbatch=2", f"{MEGATRON},fp8=block"))
    assert found == pytest.approx(sum((2 + 2 * (1 + 4 / 128)) * (read + given) for read, given, _ in groups()), rel=1e-12)


def test_compiled_layers_cast_once_what_several_products_read():
    """torchao: 5 B an element read, 2 turned; 7 of each gradient; 5 and 2 of each weight in each of the passes."""
    passes, read = 4, sum(read for read, _, _ in groups())
    given = sum(m * n for _, m, n, _ in linear())
    weights = passes * sum(7 * n * k for _, _, n, k in linear())
    compiled = cast_bytes(traced("dp=1,microbatch=2", f"{PYTORCH},fp8=tensor,compile=layers"))
    assert compiled == 7 * read + 7 * given + weights
    eager = cast_bytes(traced("dp=1,microbatch=2", f"{PYTORCH},fp8=tensor"))
    assert eager == compiled + 7 * (sum(m * k for _, m, _, k in linear()) - read)


def test_a_product_reads_two_operands_of_one_byte():
    wide, narrow = (traced("dp=1,microbatch=2", f"{MEGATRON}{words}") for words in ("", ",fp8=delayed"))
    less = sum(size for name, _, flops, size in rows(wide) if flops) - sum(size for _, _, flops, size in rows(narrow) if flops)
    passes = 4
    assert less == sum(2 * read + 2 * given for read, given, _ in groups()) + passes * sum(2 * n * k for _, _, n, k in linear())


def asked(trace, operation="all_gather"):
    events, axes = trace.events_of(0), trace.group_of[0]
    return Counter(
        {
            key: int(size)
            for key, size in _sums(
                (trace.groups[axes[events.group[i]]].axis, events.dtype[i], int(events.count[i]))
                for i in np.flatnonzero(events.kind == Kind.COLLECTIVE)
                if events.name[i] == operation
            ).items()
        }
    )


def _sums(found):
    sums = Counter()
    for axis, dtype, count in found:
        sums[axis, dtype] += count
    return sums


@pytest.mark.parametrize("overlap", ["backward", "overlapped", "chunked"])
def test_rows_of_sequence_parallelism_are_gathered_in_fp8_and_scattered_in_bfloat16(overlap):
    """All gathers of layers are in FP8; the embedding's gradient and the head's two are gathered in bfloat16."""
    wide, narrow = (
        traced("tp=4,sp,microbatch=2", f"{MEGATRON},tp={overlap}{words}") for words in ("", ",fp8=delayed,fp8_gather=yes")
    )
    assert asked(narrow, "reduce_scatter") == asked(wide, "reduce_scatter")
    products = sum(flops for _, dtype, flops, _ in rows(narrow) if dtype == FP8)  # those in pieces, too
    assert products == sum(3 * 2 * m * n * k for _, m, n, k in linear()) // 4
    tokens = B * S * 64
    of_layers = 2 * 3 * LLAMA.layers * tokens  # two blocks a layer
    assert asked(narrow)["tp", FP8] == of_layers
    assert asked(narrow)["tp", "bfloat16"] == asked(wide)["tp", "bfloat16"] - of_layers == 3 * tokens


@pytest.mark.parametrize("dp", ["exposed", "overlapped"])
def test_weights_of_products_are_gathered_in_fp8_and_all_others_are_not(dp):
    found = asked(traced("dp=4,sharding=zero1,microbatch=2", f"{MEGATRON},dp={dp},fp8=delayed,fp8_gather=yes"))
    narrow = sum(n * k for _, _, n, k in linear())
    assert narrow <= found["dp", FP8] < narrow + 64 * len(linear()) + 512
    others = LLAMA.parameters() - narrow
    assert others <= found["dp", "bfloat16"] < others + 64 * 40 + 512
    kept = asked(traced("dp=4,sharding=zero1,microbatch=2", f"{MEGATRON},dp={dp},fp8=delayed"))
    assert set(kept) == {("dp", "bfloat16")}


def test_fsdp_gathers_layers_in_fp8_and_the_ends_in_bfloat16_and_holds_less():
    words = "dp=4,sharding=fsdp,microbatch=2"
    ends = sum(o.parameters for name in (EMBEDDING, HEAD) for o in LLAMA.part(name, Tokens(S)))
    found = asked(traced(words, f"{PYTORCH},fp8=tensor,fp8_gather=yes"))
    wide = asked(traced(words, f"{PYTORCH},fp8=tensor"))
    assert found["dp", "bfloat16"] == ends
    assert found["dp", FP8] + ends == wide["dp", "bfloat16"]
    plan = parse_plan(words, global_batch=B, seq=S)
    few, many = (reserved_bytes(LLAMA, plan, parse_stack(f"{PYTORCH},fp8=tensor{more}")) for more in (",fp8_gather=yes", ""))
    assert few < many
