"""Megatron-LM's memory by part against closed forms of the papers: b sequences of s tokens at once, h hidden, a heads, t = tp.

Where nothing is dropped out, the papers' forms are less the masks (two bytes a token and element of h, one a score) and less
what dropout makes of the scores (two bytes each).
"""

from dataclasses import replace
from math import ceil

import pytest

from emu.model.generate.generate import holds, memory_by_part, roles_by_place
from emu.model.generate.megatron.megatron_step import peaks
from emu.model.memory.layer_memory import LayerMemory
from emu.model.model import HEAD, MODELS
from emu.model.operator import ATTENTION
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import SOFTWARE, parse_stack
from emu.trace.trace import PARTS

GPT, LLAMA = MODELS.find("korthikanti-22b"), MODELS.find("llama3-8b")
S, B, H, A, T, V = 2048, 4, 6144, 64, 8, 51_200
SCORES = 2 * A * S / H  # 5 a s / h in the paper


def piece(words, name="dense"):
    plan = parse_plan(f"{words},microbatch={B}", global_batch=B, seq=S)
    return LayerMemory(GPT, plan, parse_stack("software=megatron,attention=unfused"), name)


@pytest.mark.parametrize(
    ("words", "of_sbh"),
    [
        ("dp=1", 32 + SCORES),  # equation 1: 34 + 5 a s / h
        ("tp=8", 8 + 24 / T + SCORES / T),  # equation 2: 10 + ...
        ("tp=8,sp", (32 + SCORES) / T),  # equation 4
        ("tp=8,recompute=selective", 8 + 24 / T),  # table 2
        ("tp=8,sp,recompute=selective", 32 / T),  # equation 6, of one layer
        ("tp=8,recompute=full", 2),  # table 2
        ("tp=8,sp,recompute=full", 2 / T),
    ],
)
def test_a_layer_keeps_what_the_paper_says(words, of_sbh):
    """Korthikanti et al. (2022), sections 4 and 5; statistics of norms, which it leaves out, are 8 bytes a token."""
    assert piece(words).kept == pytest.approx(of_sbh * S * B * H, rel=2e-4)


@pytest.mark.parametrize(
    ("words", "of_sbh"),
    [
        ("dp=1", 34 + 5 * A * S / H),  # equation 1
        ("tp=8", 10 + 24 / T + 5 * A * S / (H * T)),  # equation 2
        ("tp=8,sp", (34 + 5 * A * S / H) / T),  # equation 4
        ("tp=8,sp,recompute=selective", 34 / T),  # equation 6, of one layer
    ],
)
def test_with_dropout_a_layer_keeps_masks_and_dropped_scores_too(words, of_sbh):
    assert piece(f"{words},dropout=0.1").kept == pytest.approx(of_sbh * S * B * H, rel=2e-4)


def test_the_head_keeps_what_it_reads_and_logits_of_four_bytes():
    """Korthikanti et al., section 4.3: 4 s b h (1 + v / h), each rank of tp a share."""
    assert piece("tp=8,sp", HEAD).kept == pytest.approx(4 * S * B * (H + V) / T, rel=2e-4)


@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_keys_and_values_that_a_group_gathers_live_during_the_backward_of_their_layer_alone(recompute):
    stack, words = parse_stack("software=megatron"), f"tp=2,cp=4,recompute={recompute}"
    ring, gathers = (LayerMemory(LLAMA, plan_of(words + how, 1, S), stack, "dense") for how in ("", ",cp_comm=all_gather"))
    assert gathers.kept == ring.kept
    own = 2 * 2 * (S // 4) * (8 // 2) * 128  # bytes of the keys and the values of a rank: 8 heads of 128 over tp = 2
    beside = zip(ring.operators, map(ring.beside, ring.operators), map(gathers.beside, gathers.operators), strict=True)
    more = {operator.kind: after - before for operator, before, after in beside if after != before}
    assert more == {ATTENTION: 2 * 3 * own}  # those of three other ranks, and the gradients of these


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("dp", [1, 3, 8])
def test_states_take_6_bytes_a_parameter_and_12_shared_over_dp(tp, dp):
    """bfloat16 weights, float32 gradients; float32 weights and moments as ZeRO's stage 1 shards them: 18 where nothing is."""
    words = f"tp={tp},dp={dp},sharding=zero1,microbatch=1"
    found = states(words, dp)
    held = LLAMA.parameters(tp)
    assert found == {"weights": 2 * held, "gradients": 4 * held, "optimizer_state": 12 * ceil(held / dp)}
    assert states(words.replace("zero1", "ddp"), dp)["optimizer_state"] == 12 * held


def states(words, batch):
    found = memory_by_part(LLAMA, parse_plan(words, global_batch=batch, seq=512), parse_stack("software=megatron"))
    return {name: size for name, size in found.items() if name != "activations"}


def test_gradients_are_written_beside_their_sum_where_no_product_adds_them():
    plan, stack = parse_plan("dp=1", global_batch=1, seq=128), parse_stack("software=megatron")
    fused, apart = (memory_by_part(LLAMA, plan, replace(stack, accumulation=how)) for how in ("fused", "unfused"))
    assert apart["activations"] > fused["activations"]
    assert {**apart, "activations": 0} == {**fused, "activations": 0}


def test_a_rank_of_the_large_dense_model_holds_what_arithmetic_says():
    """llama3.1-405b on 16,384: the second of 16 stages has 8 of the 126 layers, and 15 microbatches under way."""
    h, ffn, kv, s, t = 16_384, 53_248, 8 * 128, 8192, 8
    words = "tp=8,sp,pp=16,dp=128,layers=7,8x14,7,sharding=zero1,recompute=full"
    found = memory_by_part(MODELS.find("llama3.1-405b"), plan_of(words, 2048, s), parse_stack("software=megatron"))
    held = 8 * ((2 * h * h + 2 * h * kv + 3 * h * ffn) // t + 2 * h)
    assert (found["weights"], found["gradients"]) == (2 * held, 4 * held)
    assert found["optimizer_state"] == ceil(12 * held / 128)
    # Of its layer that is worked out again: what two norms and the products after them read, queries and what attention gave,
    # keys and values, the gate's two and what it gave.
    share = s * h // t
    again = 2 * share * (2 + 2 + 1 + 1 + 2 * kv / h + 3 * ffn / h)
    inputs = 2 * share * (15 * 8 - 1)  # each layer keeps what came in: 2 s b h / t
    gradients = 2 * (s * h + s * ffn // t + share)  # of the last product: of what it gave, whole, took, and of the residual
    tokens = 2 * 8 * 16 * s
    assert found["activations"] == pytest.approx(inputs + again + gradients + tokens, rel=1e-3)


def test_a_rank_of_the_large_model_with_experts_holds_what_arithmetic_says():
    """gpt-moe-1.1t on 131,072: the first of 16 stages has 12 of the 192 layers and the tables, and all 16 microbatches."""
    h, s, v, t, ep, dp = 12_288, 2048, 64_000, 16, 8, 512
    words = "tp=16,sp,pp=16,ep=8,dp=512,sharding=zero1,recompute=full"
    found = memory_by_part(MODELS.find("gpt-moe-1.1t"), plan_of(words, 8192, s), parse_stack("software=megatron"))
    attention = 4 * h * h // t + 3 * h // t + h + 4 * h  # with biases, and two norms of two vectors
    plain, router = 8 * h * h // t + 4 * h // t + h, 8 * h
    dense = 6 * (attention + plain) + 6 * (attention + router) + v * h // t + 2048 * h
    experts = 6 * 8 * (8 * h * h) // t // ep
    assert (found["weights"], found["gradients"]) == (2 * (dense + experts), 4 * (dense + experts))
    copies = t * dp // (t * ep)  # ranks that have the same experts
    assert found["optimizer_state"] == ceil(12 * dense / dp) + ceil(12 * experts / copies)
    share, rows = s * h // t, 2 * s * h  # two rows a token, of which every rank of the expert's tp has all
    # Worked out again: two norms, the first products and the router, attention; the experts' rows, before and after GeLU.
    again = 2 * share * (2 + 2 + 4) + 2 * rows + 2 * 2 * rows * 4 // t
    gradients = 2 * (rows + rows * 4 // t + share)  # of the experts' last product
    inputs = 2 * share * (16 * 12 - 1)
    assert found["activations"] == pytest.approx(inputs + again + gradients + 2 * 8 * 16 * s, rel=1e-3)


def test_the_rank_with_the_fullest_expert_keeps_the_rows_that_come_to_it():
    words, rows = "ep=8,dp=8,sharding=zero1,microbatch=1", 2 * 4096  # a rank's tokens, each of which sees two experts
    even, uneven, almost = (
        memory_by_part(
            MODELS.find("mixtral-8x7b"), plan_of(f"{words},imbalance={n}", 8, 4096), parse_stack("software=megatron")
        )
        for n in (0, 0.5, 0.0001)
    )
    assert almost == even
    more = 8 * round(rows / (1 + 7 * 0.5)) - rows  # one expert gets 1, the seven others get half of that
    of_row = 2 * (4096 + 3 * 14336)  # bytes: what comes in, gate, up, and what goes down
    assert uneven == {**even, "activations": even["activations"] + 32 * more * of_row}


@pytest.mark.parametrize("deferred", [1, 22, 100])
def test_a_deferred_gradient_of_the_head_holds_the_gradient_of_the_logits_and_what_the_head_read(deferred):
    plan = plan_of("tp=4,sp,pp=4,sharding=zero1,layers=10,10,10,2,recompute=full,microbatch=1", 32, 8192)
    stack = parse_stack("software=megatron")
    *now, last = peaks(LLAMA, plan, stack, range(4))
    *later, last_later = peaks(LLAMA, plan, replace(stack, deferred=deferred), range(4))
    each = 2 * 8192 * 128_256 // 4 + 2 * 8192 * 4096 // 4
    assert later == now
    assert last_later == (*last[:3], last[3] + min(deferred, 31) * each)  # the last of 32 is never deferred
    roles = roles_by_place(LLAMA, plan, replace(stack, deferred=deferred))
    assert [role.peak for place in roles for role in place] == [*later, last_later]  # and so where events are written


def plan_of(words, global_batch, seq):
    return parse_plan(words, global_batch=global_batch, seq=seq)


WALKED = [
    ("llama-tiny", "tp=2,sp,pp=2,dp=2,order=1f1b,sharding=fsdp", "pytorch"),
    ("llama-tiny", "dp=4,sharding=fsdp,shard=2,recompute=full", "pytorch"),
    ("gpt-tiny", "tp=2,pp=4,dp=2,order=gpipe", "pytorch"),
    ("gpt-tiny", "pp=2,vp=2,dp=2,order=zero-bubble", "pytorch"),
    ("deepseek-tiny", "pp=2,vp=2,dp=2,order=interleaved,sharding=fsdp", "pytorch"),
    ("gpt-moe-tiny", "tp=2,ep=2,dp=4,sharding=fsdp,recompute=full", "pytorch"),
    ("mixtral-tiny", "ep=2,dp=2,sharding=zero1", "pytorch"),
    # The rank whose parameters of ZeRO-1 are most is not the first; nor in both kinds of parameters.
    ("gpt-tiny", "pp=2,dp=4,sharding=zero1", "pytorch"),
    ("deepseek-tiny", "pp=2,ep=2,dp=4,sharding=zero1", "pytorch"),
    ("llama-tiny", "tp=2,sp,pp=2,vp=2,dp=2,order=interleaved,sharding=zero1", "megatron"),
]


@pytest.mark.parametrize(("name", "words", "software"), WALKED)
def test_a_step_holds_the_same_whether_or_not_its_events_are_written_down(name, words, software):
    """A silent tape goes through equal stages once, and through no event: what lives must not depend on either."""
    model, plan = MODELS.find(name), parse_plan(f"{words},microbatch=1", global_batch=16, seq=64)
    stack = parse_stack(f"software={software}")
    written = [role.peak for place in roles_by_place(model, plan, stack) for role in place]
    assert memory_by_part(model, plan, stack) == dict(zip(PARTS, max(written, key=sum), strict=True))


def test_the_state_of_zero1_is_that_of_the_rank_to_which_most_elements_are_dealt():
    # Three ranks share the states of a stage: 12 bytes an element (weights, two moments), and 4 for the count of a parameter.
    model, stack = MODELS.find("megatron-gpt-145b"), parse_stack("software=pytorch")
    found = memory_by_part(model, plan_of("tp=4,sp,dp=3,pp=80,sharding=zero1", 240, 2048), stack)
    assert found["optimizer_state"] == 2_717_909_004  # the first rank has 2,341,564,464


@pytest.mark.parametrize("software", [*SOFTWARE])
@pytest.mark.parametrize("pp", [2, 4])
def test_of_one_microbatch_the_place_with_the_head_may_hold_most(pp, software):
    """The memory of a plan is that of its fullest place: here the last, which has the logits; bytes for it hold every place."""
    model, stack = MODELS.find("llama-tiny"), parse_stack(f"software={software}")
    plan = parse_plan(f"pp={pp}", global_batch=1, seq=128)
    most = sum(memory_by_part(model, plan, stack).values())
    assert holds(model, plan, stack, most, range(pp))
    assert [holds(model, plan, stack, most - 1, [place]) for place in range(pp)] == [True] * (pp - 1) + [False]
